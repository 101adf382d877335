"""Step module03: A shared member is listed once, or under all its names

Step 59a has shown what a parameter costs that is listed twice: each optimizer moves it twice. There
named_parameters remembers the parameters that it has given. Here the walk over modules does so too:
`memo` is a set of modules, passed down through the tree, since a whole module may be used in two
places.

A set hashes its elements. Tensors and modules hash by identity, and a set compares identity before
equality, so `param in seen` does not compare numbers.

The trap: sometimes the duplicates are needed, for example to save a network under all its names, or
to find a module by its second name. For that there is remove_duplicate=False. And recurse=False
lists only what the module itself owns. (Names and defaults are PyTorch's.)

Changed: named_modules, named_parameters, parameters.
Try: tie the weights of the two layers, too. How many modules and parameters are listed?
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

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Members"]]:
        """This module and all its parts, however deep: ("", self), ("encoder", ...),
        ("encoder.0", ...). A part that is used in two places comes once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            inner = f"{prefix}.{name}" if prefix else name
            yield from module.named_modules(memo, inner, remove_duplicate)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """("encoder.0.weight", parameter), ... in the order of registration; tied ones once."""
        seen = set()
        inside = self.named_modules(None, prefix, remove_duplicate)
        for path, module in inside if recurse else [(prefix, self)]:
            for name, param in module._parameters.items():
                if param not in seen:
                    yield f"{path}.{name}" if path else name, param
                    if remove_duplicate:
                        seen.add(param)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """What an optimizer wants: all parameters of this module and of its parts."""
        return (param for _, param in self.named_parameters(recurse=recurse))


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
    from tinytorch.autograd.modes import no_grad

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

    def tied():
        two = Two()
        two.second.bias = two.first.bias
        return two

    def step(two, params):
        """Where one step of size 0.1 brings the bias, which starts at 0."""
        two(tensor([[3.0]])).sum().backward()
        print("gradient", two.first.bias.grad.item(), end=", ")
        with no_grad():
            for param in params:
                param -= 0.1 * param.grad
        print(f"new bias {two.first.bias.item():.2f}")

    two = tied()
    step(two, [param for _, param in two.named_parameters(remove_duplicate=False)])  # as in 71b
    # -> gradient 3.0, new bias -0.60
    two = tied()
    step(two, two.parameters())  # -> gradient 3.0, new bias -0.30
    print([name for name, _ in two.named_parameters()])
    # -> ['first.weight', 'first.bias', 'second.weight']
    print([name for name, _ in two.named_parameters(remove_duplicate=False)])
    # -> ['first.weight', 'first.bias', 'second.weight', 'second.bias']

    # A layer in two places, and what the root itself owns.
    two.again = two.first
    two.scale = Parameter(tensor([1.0]))
    print([path for path, _ in two.named_modules()])  # -> ['', 'first', 'second']
    print([path for path, _ in two.named_modules(remove_duplicate=False)])
    # -> ['', 'first', 'second', 'again']
    print([name for name, _ in two.named_parameters("net", recurse=False)])  # -> ['net.scale']
