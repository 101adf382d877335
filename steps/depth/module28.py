"""Step module28: ParameterList and ParameterDict

A module may own many parameters outside of layers: one matrix for each depth, or two thin matrices
for each adapted layer. In a plain Python list they are hidden, as modules were (step module01): the
optimizer gets none of them, and the state does not contain them. The demo counts 0.

ModuleList refuses them, because a parameter is not a module. But a list works the same way for
both; only the dictionary differs in which the members are stored:

    ModuleList      _modules        names 0, 1, 2, ...   in the tree, with parts of their own
    ParameterList   _parameters     names 0, 1, 2, ...   at the leaves

The containers of step module15 use the dictionary that `_store` names, and here it is
"_parameters". The inherited methods (append, +=, slices, items, update) work at once.

A plain tensor becomes a Parameter when it is added, as in PyTorch. The trap: the Parameter is a new
object. The tensor that you passed does not get the gradient; list[0] does.

New: ParameterContainer, ParameterList, ParameterDict. Taken up again: the containers.
Try: remove `_store`. What does the list refuse?
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from itertools import groupby
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module, module_text
from tinytorch.nn.parameter import Parameter

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Container(Module):
    """A module that is there for its members, all in one of the three dictionaries."""

    _store = "_modules"
    _members = property(lambda self: self.__dict__[self._store])


class ListContainer(Container, MutableSequence):
    """What lists of members have in common: the names "0", "1", ... and the methods of a list.

    The members are registered, as attributes would be; those of a plain Python list are not.
    Python's MutableSequence adds what follows from the methods here: pop, remove, reverse, +=.
    """

    def _set_all(self, members: list) -> None:
        """Replaces all members by these, under the names 0, 1, 2, ..."""
        self._members.clear()
        self.extend(members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._members.values()))

    def __getitem__(self, index: Any) -> Any:
        """The member at `index`; for a slice, a module of the same kind with those members."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return list(self)[index]

    def __setitem__(self, index: int, member: Any) -> None:
        name = list(self._members)[index]
        self._register(self._store, name, member)

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
        self._register(self._store, str(len(self)), member)
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


class DictContainer(Container, MutableMapping):
    """What dictionaries of members have in common: the methods of a dict.

    Python's MutableMapping adds what follows from the methods here: keys, items, pop, update.
    """

    # A Mapping compares by content and so cannot be a key; a module is told apart by its identity.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __getitem__(self, key: str) -> Any:
        return self._members[key]

    def __setitem__(self, key: str, member: Any) -> None:
        self._register(self._store, key, member)

    def __delitem__(self, key: str) -> None:
        del self._members[key]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)


class ModuleDict(DictContainer):
    """Modules by name, for a forward that chooses among them."""

    def __init__(self, modules: Any = None):
        super().__init__()
        self.update({} if modules is None else modules)


class ParameterContainer:
    """What a list and a dictionary of parameters share. Plain tensors become parameters."""

    _store = "_parameters"

    def _register(self, store: str, name: str, value: Any) -> None:
        plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
        super()._register(store, name, Parameter(value) if plain else value)

    def extra_repr(self) -> str:
        lines = []
        for name, param in self._parameters.items():
            size = "x".join(map(str, param.shape))
            lines.append(f"  ({name}): Parameter containing: [{param.dtype!r} of size {size}]")
        return "\n".join(lines)


class ParameterList(ParameterContainer, ListContainer):
    """A list of parameters."""

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(() if values is None else values)


class ParameterDict(ParameterContainer, DictContainer):
    """Parameters by name."""

    def __init__(self, parameters: Any = None):
        super().__init__()
        self.update({} if parameters is None else parameters)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
    from tinytorch.nn.modules.module import Module
    from tinytorch.ops.creation import ones
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    class Stack(Module):
        """x times each matrix in turn."""

        def __init__(self, kind):
            super().__init__()
            self.matrices = kind([Parameter(randn(2, 2)) for _ in range(3)])

        def forward(self, x):
            for matrix in self.matrices:
                x = (x @ matrix).tanh()
            return x

    print(len(list(Stack(list).parameters())), "parameters in a plain list")
    # -> 0 parameters in a plain list
    net = Stack(ParameterList)
    print([name for name, _ in net.named_parameters()])
    # -> ['matrices.0', 'matrices.1', 'matrices.2']
    net(randn(4, 2)).sum().backward()
    print(all(p.grad is not None for p in net.parameters()), list(net.state_dict())[-1])
    # -> True matrices.2

    # A plain tensor becomes a parameter, and a list it is.
    plain = ones(2, 3)
    net.matrices.append(plain)
    print(type(net.matrices[-1]).__name__, net.matrices[-1] is plain)  # -> Parameter False
    print(net.matrices[2:])
    # -> ParameterList(
    # ->     (0): Parameter containing: [tinytorch.float32 of size 2x2]
    # ->     (1): Parameter containing: [tinytorch.float32 of size 2x3]
    # -> )

    # Adapters by the name of the layer that they change.
    adapters = ParameterDict({"query": ones(4, 1)})
    adapters["value"] = ones(1, 4)
    print(sorted(adapters.keys()), sum(p.numel() for p in adapters.parameters()))
    # -> ['query', 'value'] 8
    del adapters["query"]
    print("query" in adapters, len(ParameterList()), len(ParameterDict()))  # -> False 0 0
