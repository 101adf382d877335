"""Step module14: Slicing and printing module lists

net[:2], the first two layers, should be a network. In step module13 it is a plain Python list: it
cannot be called, and it hides its parameters again. The demo begins with such a list.

So a slice or a sum of containers is a container of the same class with the same members, not
copies: training the slice trains the original.

For Sequential the names matter as well. A layer named "bend" should keep its name in a slice. So
Sequential also accepts an OrderedDict of modules by name, and builds its slices with one. (This is
PyTorch's rule, too.)

Twelve equal blocks make a long print. ModuleList prints equal neighbours on one line:

    (0-11): 12 x Scale(factor=0.5)

The trap: equal means equal in print. Blocks with different weights and the same text share a line,
which is what the reader wants here.

Changed: ListContainer.__getitem__, Sequential.__init__. New: ListContainer.__add__,
Sequential.__getitem__, ModuleList.__repr__.
Try: print a Sequential of equal blocks. Why is each block on its own line?
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableSequence
from itertools import groupby
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


class ListContainer(Module, MutableSequence):
    """What lists of members have in common: the names "0", "1", ... and the methods of a list.

    The members are registered, as attributes would be; those of a plain Python list are not.
    Python's MutableSequence adds what follows from the methods here: pop, remove, reverse, +=.
    """

    def _set_all(self, members: list) -> None:
        """Replaces all members by these, under the names 0, 1, 2, ..."""
        self._modules.clear()
        self.extend(members)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: Any) -> Any:
        """The member at `index`; for a slice, a module of the same kind with those members."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return list(self)[index]

    def __setitem__(self, index: int, member: Any) -> None:
        name = list(self._modules)[index]
        self._register("_modules", name, member)

    def __delitem__(self, index: Any) -> None:
        members = list(self)
        del members[index]
        self._set_all(members)

    def __add__(self, others: Iterable[Any]) -> "ListContainer":
        return type(self)().extend([*self, *others])

    def insert(self, index: int, member: Any) -> "ListContainer":
        """Puts a member before the one at `index`."""
        members = list(self)
        members.insert(index, member)
        self._set_all(members)
        return self

    def append(self, member: Any) -> "ListContainer":
        """Adds a member at the end. Raises TypeError for what is not a module."""
        self._register("_modules", str(len(self)), member)
        return self

    def extend(self, members: Iterable[Any]) -> "ListContainer":
        """Adds members at the end. Raises TypeError for what cannot be iterated."""
        for member in list(members):
            self.append(member)
        return self


class Sequential(ListContainer):
    """Modules in a row: each gets what the one before it gives. The arguments are modules, or one
    OrderedDict of modules by name.

        Sequential(Linear(784, 128), ReLU(), Linear(128, 10))
    """

    def __init__(self, *modules: Any):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(ListContainer):
    """A list of modules, for a forward that goes through them in its own way."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(() if modules is None else modules)

    def __repr__(self) -> str:
        parts = []  # equal neighbours share a line: (0-2): 3 x Linear(...)
        for text, equal in groupby(enumerate(map(repr, self)), key=operator.itemgetter(1)):
            first, *rest = [number for number, _ in equal]
            several = (f"{first}-{rest[-1]}", f"{len(rest) + 1} x {text}") if rest else None
            parts.append(several or (str(first), text))
        return module_text(self, parts)


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

    row, x = Sequential(Scale(2.0), Tanh(), Scale(10.0)), tensor([[0.5]])
    print("by itself Python gives a", type(list(row)[:2]).__name__)
    # -> by itself Python gives a list
    head = row[:2]
    print(head)
    # -> Sequential(
    # ->   (0): Scale(factor=2.0)
    # ->   (1): Tanh()
    # -> )
    print(f"{head(x).item():.6f}", head[0] is row[0])  # -> 0.761594 True

    # Names are kept.
    named = Sequential(OrderedDict(front=Scale(2.0), bend=Tanh(), back=Scale(10.0)))
    print([name for name, _ in named[1:].named_children()], f"{named(x).item():.6f}")
    # -> ['bend', 'back'] 7.615942
    print(named.bend is named[1], list(named[1:].state_dict()))  # -> True ['back.factor']

    # Lists: slices, sums and prints.
    blocks = ModuleList(Scale(0.5) for _ in range(12))
    print(type(blocks[2:4]).__name__, len(blocks[2:4]), len(blocks[:2] + [Tanh()]))
    # -> ModuleList 2 3
    blocks[10] = Tanh()
    print(blocks)
    # -> ModuleList(
    # ->   (0-9): 10 x Scale(factor=0.5)
    # ->   (10): Tanh()
    # ->   (11): Scale(factor=0.5)
    # -> )
