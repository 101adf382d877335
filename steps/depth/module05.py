"""Step module05: A member is replaced: None, and another type

In step module04 a name can still be in two places. `layer.bias = None`, to switch the bias off,
makes a plain attribute; the parameter stays in its dictionary, hidden, and the optimizer finds it
there. An attribute that becomes a module hides the module.

So before __setattr__ stores, it asks _store_of where the name is now:

    the value is a parameter or a module     into its dictionary; the old entry is removed
    any other value, and a member's name     into the dictionary that has the name
    any other value, and another name        a plain attribute

The second row makes None useful: it keeps the name in its dictionary, so that a parameter can be
set later. The walks skip a None: named_modules asks, and named_parameters begins with `seen =
{None}`.

The trap: `self.bias = None` where there never was a bias makes a plain attribute, and reserves
nothing; register_parameter of step module06 does.

(__init__ writes into `__dict__` directly, because __setattr__ now looks into the dictionaries.)

Changed: Members.__init__, __setattr__, named_modules, named_parameters.
Try: take out `if store != before` with its two pops. Which line of the demo changes first?
"""

import importlib
from collections.abc import Iterator
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.nn.parameter import Parameter


class Members:
    """What a module consists of: parameters and other modules, each under its name."""

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(_parameters={}, _modules={})

    def _store_of(self, name: str) -> str | None:
        """Which of the two dictionaries has a member `name`."""
        for store in ("_parameters", "_modules"):
            if name in self.__dict__.get(store, ()):
                return store
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        before = store = self._store_of(name)
        if isinstance(value, Parameter):
            store = "_parameters"
        elif isinstance(value, Members):
            store = "_modules"
        if store is None:  # anything else, and a plain tensor too, is a plain attribute
            object.__setattr__(self, name, value)
            return
        if store != before:
            self.__dict__.pop(name, None)
            self.__dict__.get(before, {}).pop(name, None)
        self.__dict__[store][name] = value

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not a plain attribute: for each weight in each forward.
        members = self.__dict__
        for store in ("_parameters", "_modules"):
            if name in members.get(store, ()):
                return members[store][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        store = self._store_of(name)
        if store is None:
            object.__delattr__(self, name)
        else:
            del self.__dict__[store][name]

    def __dir__(self) -> list[str]:
        members = (*self._parameters, *self._modules)
        return sorted({*super().__dir__(), *(name for name in members if not name[0].isdigit())})

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
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """("encoder.0.weight", parameter), ... in the order of registration; tied ones once."""
        seen = {None}
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

    def names(module):
        return [name for name, _ in module.named_parameters()]

    # None keeps the name; a parameter can take its place again.
    line, x = Linear(), tensor([[3.0]])
    line.bias = None
    print(line.bias, names(line))  # -> None ['weight']
    line.bias = Parameter(tensor([1.0]))
    print(line(x).item(), names(line))  # -> 2.5 ['weight', 'bias']
    del line.bias
    print(names(line), hasattr(line, "bias"))  # -> ['weight'] False

    # What was one thing becomes another: nothing is left in the old place.
    line.extra = 1
    line.extra = Linear()
    print("extra" in vars(line), names(line))  # -> False ['weight', 'extra.weight', 'extra.bias']
    line.extra = Parameter(tensor([1.0]))
    print(list(line._modules), names(line))  # -> [] ['weight', 'extra']
    line.plain = 2
    del line.plain
    print(hasattr(line, "plain"))  # -> False

    # A part that is None is a name without a part.
    line.second = Linear()
    line.second = None
    print([path for path, _ in line.named_modules()], list(line._modules))  # -> [''] ['second']

    # What is wrong still: what stands among the parameters, and an error about something else.
    line.weight = tensor([[1.0]])
    print([type(param).__name__ for param in line.parameters()])  # -> ['Tensor', 'Parameter']

    class TooEarly(Module):
        def __init__(self):
            self.weight = Parameter(tensor([1.0]))
            super().__init__()

    try:
        TooEarly()
    except KeyError as error:
        print("KeyError:", error)
    # -> KeyError: '_parameters'
