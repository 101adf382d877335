"""Step module02: Named parameters in the package's dress

Step 41c gave each parameter a path through the tree. Here one walk serves all purposes:
named_modules yields the modules with their paths, starting at the root, and named_parameters lists
the parameters of each. parameters() leaves out the names.

The trap is the root. Its path is "", and its own parameters have no dot in front: "scale", not
".scale". (PyTorch uses the same names, also in the files that it saves.)

Changed: Members.parameters. New: named_modules, named_parameters.
Try: give Two a parameter of its own, a scale, and let its forward multiply by it. Where in the list
does it appear, and why?
"""

import importlib
from collections.abc import Iterator
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.nn.parameter import Parameter


class Members:
    """What a module consists of: parameters and other modules, each under its name."""

    def __init__(self):
        self._parameters, self._modules = {}, {}

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Members):
            self._modules[name] = value
        object.__setattr__(self, name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, "Members"]]:
        """This module and all its parts, however deep: ("", self), ("encoder", ...),
        ("encoder.0", ...)."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """("encoder.0.weight", parameter), ... in the order of registration."""
        for path, module in self.named_modules(prefix):
            for name, param in module._parameters.items():
                yield f"{path}.{name}" if path else name, param

    def parameters(self) -> Iterator[Parameter]:
        """What an optimizer wants: all parameters of this module and of its parts."""
        return (param for _, param in self.named_parameters())


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    def zero_grad(self) -> None:
        """Clears the gradients of all parameters."""
        for param in self.parameters():
            param.grad = None

    def __repr__(self) -> str:
        parts = (f"({name}): {module!r}" for name, module in self._modules.items())
        lines = [text.replace("\n", "\n  ") for text in parts]
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({inside})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "elementwise", "matmul", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.autograd.backward")

    class Linear(Module):
        """y = x w + b."""

        def __init__(self, weight=0.5):
            super().__init__()
            self.weight = Parameter(tensor([[weight]]))
            self.bias = Parameter(tensor([0.0]))

        def forward(self, x):
            return x @ self.weight + self.bias

    class Two(Module):
        def __init__(self):
            super().__init__()
            self.first = Linear()
            self.second = Linear(2.0)

        def forward(self, x):
            return self.second(self.first(x))

    two, x = Two(), tensor([[3.0]])
    print(list(p.item() for p in two.parameters()))  # -> [0.5, 0.0, 2.0, 0.0]
    two(x).sum().backward()
    for name, param in two.named_parameters():
        print(f"{name:13} {param.item()}  gradient {param.grad.item()}")
    # -> first.weight  0.5  gradient 6.0
    # -> first.bias    0.0  gradient 2.0
    # -> second.weight 2.0  gradient 1.5
    # -> second.bias   0.0  gradient 1.0
    print([path for path, _ in two.named_modules()])  # -> ['', 'first', 'second']

    # The same names from further away.
    class Outer(Module):
        def __init__(self):
            super().__init__()
            self.scale = Parameter(tensor(1.0))
            self.inner = two

    outer = Outer()
    print([name for name, _ in outer.named_parameters()][:3])
    # -> ['scale', 'inner.first.weight', 'inner.first.bias']

    # A name says which are to be frozen: here all weights.
    for name, param in outer.named_parameters():
        param.requires_grad_(not name.endswith("weight"))
    print([name for name, param in outer.named_parameters() if param.requires_grad])
    # -> ['scale', 'inner.first.bias', 'inner.second.bias']
