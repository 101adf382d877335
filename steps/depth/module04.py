"""Step module04: __getattr__, __delattr__ and __dir__

Step 75b stores members in dictionaries only, and looks them up in __getattr__. In step module03 a
parameter is still stored in two places. The two can disagree: `del layer.bias` deletes the
attribute and leaves the parameter listed. The demo begins with such a layer, made by hand: an
optimizer would still update a bias that forward does not have.

    layer.bias = value     __setattr__     stores by the value's type
    layer.bias             __getattr__     only if no plain attribute has the name
    del layer.bias         __delattr__     deletes from the dictionary that has the name

`dir`, which lists the names of an object, does not find members by itself any more; __dir__ adds
them. (It leaves out names such as "0", which are not valid attribute names.)

The trap: inside __getattr__, a missing `self._parameters` would call __getattr__ again, without
end. `self.__dict__` is always there.

Changed: Members.__setattr__. New: _store_of, __getattr__, __delattr__, __dir__.
Try: in __getattr__ write self._parameters, and copy.copy a module. (It makes one without __init__.)
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

    def _store_of(self, name: str) -> str | None:
        """Which of the two dictionaries has a member `name`."""
        for store in ("_parameters", "_modules"):
            if name in self.__dict__.get(store, ()):
                return store
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Members):
            self._modules[name] = value
        else:  # a plain tensor, too, is a plain attribute
            object.__setattr__(self, name, value)

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

    # Two places that have come apart: what del did until now.
    def names(module):
        return [name for name, _ in module.named_parameters()]

    apart = Linear()
    object.__setattr__(apart, "bias", None)  # the attribute has changed, the list has not
    print("forward finds", apart.bias, "and the optimizer", names(apart))
    # -> forward finds None and the optimizer ['weight', 'bias']

    # One place.
    line, x = Linear(), tensor([[3.0]])
    print("bias" in vars(line), "bias" in line._parameters, "bias" in dir(line))
    # -> False True True
    print(line(x).item())  # -> 1.5
    del line.bias
    print(names(line))  # -> ['weight']
    try:
        line(x)
    except AttributeError as error:
        print(error)
    # -> 'Linear' object has no attribute 'bias'
    line.plain = 2
    del line.plain
    print(hasattr(line, "plain"))  # -> False

    # What is wrong still: a name that changes its kind is in two places again.
    line = Linear()
    line.bias = None
    print("forward finds", line.bias, "and the optimizer", names(line))
    # -> forward finds None and the optimizer ['weight', 'bias']
