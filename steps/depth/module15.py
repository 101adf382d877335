"""Step module15: ModuleDict, and containers for any kind of member

Step 75a built ModuleDict. As in step module13, MutableMapping requires five methods (get, set,
delete, length, iterate) and supplies keys, values, items, pop, update and `in`. One inherited
method is wrong here: a Mapping compares by content, and so has no hash. Modules compare by
identity, and the walks of step module03 keep them in sets.

Both containers store their members in `_modules`. But a module has three dictionaries (step
module07), and a list of parameters or of buffers is useful as well. So the attribute `_store` names
the dictionary, and the methods use it. The demo makes a list of buffers in two lines; step module28
makes the lists of parameters.

The trap: a key is a name. So a dot is refused, and so is a key that is an attribute of the module,
such as "forward" or "training". (PyTorch refuses them, too.)

Changed: ListContainer is a Container. New: Container, DictContainer, ModuleDict.
Try: leave out the line with __eq__, and list the parameters of a module that holds a ModuleDict.
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
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

    class Switch(Module):
        def __init__(self, kind):
            super().__init__()
            self.kinds = kind({"tanh": Tanh(), "twice": Scale(2.0)})

        def forward(self, x, kind):
            return self.kinds[kind](x)

    x = tensor([[0.5]])
    for kind in (dict, ModuleDict):
        switch = Switch(kind)
        print(f"{kind.__name__}: {switch(x, 'tanh').item():.4f}", list(switch.state_dict()))
    # -> dict: 0.4621 []
    # -> ModuleDict: 0.4621 ['kinds.twice.factor']
    kinds = switch.kinds
    kinds["ten"] = Scale(10.0)
    del kinds["tanh"]
    print(list(kinds), len(kinds), kinds.pop("ten"), "ten" in kinds, len(ModuleDict()))
    # -> ['twice', 'ten'] 2 Scale(factor=10.0) False 0
    for key in ("a.b", "forward"):
        try:
            kinds[key] = Tanh()
        except KeyError as error:
            print(error.args[0])
    # -> module name can't contain "." or be empty, got 'a.b'
    # -> attribute 'forward' already exists

    # The same list, of buffers: numbers that are kept and not learned.
    class Tables(ListContainer):
        _store = "_buffers"

    tables = Tables().append(tensor([1.0])).append(tensor([2.0]))
    tables[0] = tensor([3.0])
    print({name: table.item() for name, table in tables.named_buffers()})  # -> {'0': 3.0, '1': 2.0}
    del tables[0]
    print({name: table.item() for name, table in tables.state_dict().items()})  # -> {'0': 2.0}
