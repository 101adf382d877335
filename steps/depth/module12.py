"""Step module12: Sequential in the package's dress

Step 41b built Sequential: parts named "0", "1", ..., and a forward that is a loop. Here the loop
goes over `_modules`. A Python dictionary keeps insertion order, so the modules are called in the
order of the arguments. Everything else is inherited: the names "0.factor" and "2.factor", the
print, the state.

The trap: Sequential passes on one value. A network that needs an input twice, such as x + f(x),
needs a forward of its own. (PyTorch: torch.nn.Sequential.)

New: Sequential. Moved: Members, to tinytorch/nn/modules/members.py.
Try: give one Scale twice, in two places. How many parameters are listed, and under which name?
"""

import importlib
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.members import Members


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes all parameters (False), or lets them learn again."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters: to None, or to zeros."""
        for param in self.parameters():
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_().zero_()

    # Its state, as names and values.

    def state_dict(self) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is."""
        state = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for name, member in (module._parameters | module._buffers).items():
                if member is not None and name not in module._non_persistent:
                    state[f"{path}.{name}" if path else name] = member.detach()
        return state

    # Its text.

    def extra_repr(self) -> str:
        """What a subclass wants to show of itself between the brackets."""
        return ""

    def __repr__(self) -> str:
        return module_text(self, [(n, repr(module)) for n, module in self._modules.items()])

    # Its call, and the hooks around it.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


class Sequential(Module):
    """Modules in a row: each gets what the one before it gives.

    Sequential(Linear(784, 128), ReLU(), Linear(128, 10))
    """

    def __init__(self, *modules: Any):
        super().__init__()
        for number, module in enumerate(modules):
            self.register_module(str(number), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


if __name__ == "__main__":
    from tinytorch.nn.parameter import Parameter

    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")

    class Scale(Module):
        """y = factor * x."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))

        def forward(self, x):
            return x * self.factor

        def extra_repr(self):
            return f"factor={self.factor.item()}"

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    class Row(Module):
        """The three layers, each mentioned twice."""

        def __init__(self):
            super().__init__()
            self.a, self.bend, self.b = Scale(2.0), Tanh(), Scale(10.0)

        def forward(self, x):
            return self.b(self.bend(self.a(x)))

    x = tensor([[0.5]])
    print(f"{Row()(x).item():.6f}")  # -> 7.615942

    row = Sequential(Scale(2.0), Tanh(), Scale(10.0))
    print(f"{row(x).item():.6f}")  # -> 7.615942
    print(row)
    # -> Sequential(
    # ->   (0): Scale(factor=2.0)
    # ->   (1): Tanh()
    # ->   (2): Scale(factor=10.0)
    # -> )
    print([name for name, _ in row.named_parameters()], list(row.state_dict()))
    # -> ['0.factor', '2.factor'] ['0.factor', '2.factor']
    a, bend, b = row.children()
    print(f"{b(bend(a(x))).item():.6f}")  # -> 7.615942
