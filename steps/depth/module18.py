"""Step module18: Module.to keeps integers; float(), half(), cuda()

Step module17 ended with a fault: net.to(float64) converted an integer counter, too. In float16 the
count becomes wrong: 2,049 is not a float16 number, so it becomes 2,048, and adding 1 no longer
changes it. The demo shows the conversion.

So `to` converts floating-point members only to a floating-point type, and moves the others to the
device. An integer type is refused: weights cannot be integers.

    to(float16)       converts floating-point members; integers keep their type
    type(float16)     converts all members, integers too
    to_empty(device)  allocates memory of the same sizes, uninitialised, to be filled from a file

float(), half(), double() and the others differ only in one word, so the function `converter` makes
these methods.

The trap: in the class body, after `float = converter(float32)`, the name float is the method.
Annotations below it cannot use Python's float. (All names are PyTorch's.)

Changed: Module.to. New: converter, to_empty, type, float, double, half, bfloat16, cpu, cuda.
Try: net.half() and then net.float(). Are the factors what they were?
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from itertools import groupby
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.members import Members
from tinytorch.ops.creation import empty_like


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


def converter(to: DType | str) -> Callable[["Module"], "Module"]:
    """The method that brings a module to a type or a device, such as module.double()."""
    return lambda self: self.to(to)


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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Module":
        """Replaces the data of each parameter, gradient and buffer. The parameters stay the same
        objects, so that an optimizer that has them goes on working."""
        for module in self.children() if recurse else ():
            module._apply(fn)
        with no_grad():
            for param in self.parameters(recurse=False):
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad = fn(param.grad.detach())
            for name, buffer in self._buffers.items():
                self._buffers[name] = None if buffer is None else fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> "Module":
        """Moves the module to a device, or to a float type, with the arguments of Tensor.to.

        Unlike Tensor.to it changes the module itself. Integer buffers keep their type.
        Raises:
            TypeError: for a type that is not a float type.
        """

        def convert(t: Tensor) -> Tensor:
            moved = t.to(*args, **kwargs)
            if t.is_floating_point() and not moved.is_floating_point():
                raise TypeError(f"Module.to only accepts floating point, not {moved.dtype!r}")
            return moved if t.is_floating_point() else t.to(moved.device)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> "Module":
        """Moves the module to a device; what its members were is lost."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self, dst_type: Any) -> "Module":
        """Makes all members of one type, integers too."""
        return self._apply(lambda t: t.type(dst_type))

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    bfloat16 = converter(bfloat16)
    cpu = converter("cpu")

    def cuda(self, device: Any = None) -> "Module":
        return self.to("cuda" if device is None else device)

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
    from tinytorch.core.dtype import int64
    from tinytorch.nn.parameter import Parameter

    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.core.printing")

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

    net, x = Sequential(Scale(2.0), Tanh(), Scale(0.1)), tensor([[1.0], [2.0]])
    net[0].seen = tensor(2049)
    print("converted as well:", net[0].seen.to(float16).long().item())  # -> converted as well: 2048
    net.half()
    print(net[0].factor.dtype, net[0].seen.dtype, net[0].seen.item())
    # -> tinytorch.float16 tinytorch.int64 2049
    print(net.double()(x.double()).dtype, net.float()(x).dtype)
    # -> tinytorch.float64 tinytorch.float32
    try:
        net.to(int64)
    except TypeError as error:
        print(error)
    # -> Module.to only accepts floating point, not tinytorch.int64
    print(net.cpu()[0].factor.device)  # -> cpu
    try:
        net.type(float16)  # asks each tensor for its own type(), which step func04 adds
    except AttributeError as error:
        print(error)
    # -> 'Tensor' object has no attribute 'type'

    # The sizes alone, and the GPU.
    net.to_empty(device="cpu")
    print(net[0].factor.shape)  # -> tinytorch.Size([1])
    try:
        found = net.cuda()[0].factor.device
    except (RuntimeError, AssertionError):
        found = "no GPU"
    print("cuda() finds", found)  # -> cuda() finds ...
