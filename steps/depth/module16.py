"""Step module16: train, eval and apply in the package's dress

Step 48a built the switch between training and evaluation, for the whole tree. Here both return the
module, so that `net.eval()(x)` works, and apply(fn) is the general form: it calls a function of
yours with each part, the inner ones first. It is the usual way to give all layers of one kind new
initial values.

The trap: train() calls the train() of each part, because a subclass may override it, for example to
keep a frozen part in evaluation mode. A loop over modules() would bypass the override. And eval()
does not switch off gradients; no_grad() does that. (Names are PyTorch's.)

New: Module.__init__, apply, train, eval.
Try: write train as a loop over self.modules(). Which promise of the demo breaks?
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
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

    training: bool

    def __init__(self):
        super().__init__()
        self.training = True

    # What is done to all of it.

    def apply(self, fn: Callable[["Module"], None]) -> "Module":
        """Calls fn with each part, the inner ones first, and with this module last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> "Module":
        """Tells this module and its parts that they are in training: Dropout drops only then."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():  # each is asked: a part may have a train of its own
            module.train(mode)
        return self

    def eval(self) -> "Module":
        """The opposite of train(): the network is used, not trained."""
        return self.train(False)

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
        """y = factor * x, and counts the rows that it has seen in training."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))
            self.register_buffer("seen", tensor(0))

        def forward(self, x):
            if self.training:
                self.seen = self.seen + len(x)
            return x * self.factor

        def extra_repr(self):
            return f"factor={self.factor.item()}"

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    net, x = Sequential(Scale(2.0), Sequential(Tanh(), Scale(3.0))), tensor([[1.0], [2.0], [3.0]])
    net(x)
    net[0].training = False  # by hand, and the other one is forgotten
    net(x)
    print("seen", net[0].seen.item(), "and", net[1][1].seen.item(), "rows in training")
    # -> seen 3 and 6 rows in training
    net.eval()(x)
    print("each part knows:", net.training, net[1][1].training, net[1][1].seen.item())
    # -> each part knows: False False 6
    print("and again:", net.train()[1][1].training)  # -> and again: True
    try:
        net.train("yes")
    except ValueError as error:
        print(error)
    # -> training mode is expected to be boolean

    # A part that is never trained.
    class Frozen(Scale):
        def train(self, mode=True):
            return super().train(False)

    net.append(Frozen(1.0)).train()
    print([part.training for part in net])  # -> [True, True, False]

    # Everything with one call.
    def start(part):
        print(type(part).__name__, end=" ")
        if isinstance(part, Scale):
            part.factor.data.fill_(5.0)

    print(net.apply(start)[1][1].factor.item())
    # -> Scale Tanh Scale Sequential Frozen Sequential 5.0
