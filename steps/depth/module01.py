"""Step module01: Module in the package's dress: parameters are registered when they are set

Step 41a built Module: it finds Parameters by looking through its attributes. Step 75b has shown why
the package looks earlier, when `self.name = value` is executed: a dictionary for each kind of
member, and __setattr__, which decides by the value. This run builds that in small steps. The first
one records Parameters in `_parameters` and other Modules in `_modules`; the walk adds up its own
and those of its parts.

The trap: a plain tensor that requires a gradient gets one, but the walk does not find it. It does
not look into plain Python lists either.

Call the module, not its forward: step module22 runs hooks in between. (PyTorch: torch.nn.Module.
The name Members is ours; it is the part of Module that registers and lists.)

Changed: Module. New: Members, which registers and finds.
Try: in Linear make the weight a plain tensor that requires a gradient. Which promises break?
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

    def parameters(self) -> Iterator[Parameter]:
        """What an optimizer wants: all parameters of this module and of its parts."""
        yield from self._parameters.values()
        for module in self._modules.values():
            yield from module.parameters()


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

    # Points on the line y = 3 x + 2, and a loop that is given what there is to learn.
    x = tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    target = 3 * x + 2

    def train(model, params, lr=0.1):
        for _ in range(100):
            loss = (model(x) - target).square().mean()
            loss.backward()
            with no_grad():
                for param in params:
                    param -= lr * param.grad
            model.zero_grad()
        return loss.item()

    # By hand: the bias is forgotten in the list, and nothing says so.
    line = Linear()
    print(f"loss {train(line, [line.weight]):.2f}, bias {line.bias.item()}")
    # -> loss 4.00, bias 0.0
    # The module knows its parameters.
    line = Linear()
    print(f"loss {train(line, list(line.parameters())):.2f}")  # -> loss 0.00
    print(f"{line.weight.item():.3f} x + {line.bias.item():.3f}")  # -> 3.000 x + 2.000

    # A tree: the parameters of a module are those of its parts, too.

    class Two(Module):
        def __init__(self):
            super().__init__()
            self.first = Linear()
            self.second = Linear(2.0)

        def forward(self, x):
            return self.second(self.first(x))

    two = Two()
    print(two)
    # -> Two(
    # ->   (first): Linear()
    # ->   (second): Linear()
    # -> )
    params = list(two.parameters())
    print(len(params), "parameters, and", f"loss {train(two, params, lr=0.02):.2f}")
    # -> 4 parameters, and loss 0.00

    # Hidden: a plain tensor, and what stands in a plain list.
    two.scale = tensor([1.0], requires_grad=True)
    two.more = [Linear(), Linear()]
    print(len(list(two.parameters())), "parameters still")  # -> 4 parameters still
