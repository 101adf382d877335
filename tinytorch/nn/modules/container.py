"""Modules that hold others: in a row, in a list, in a dictionary."""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from itertools import groupby
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module, module_text
from tinytorch.nn.parameter import Parameter


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
