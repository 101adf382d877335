"""What a traced graph holds for: the kinds of its arguments, and the Python values around it."""

import types
from collections.abc import Iterator
from typing import Any

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Device
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor

PLAIN = (bool, int, float, str, bytes, type(None), DType, Device, type, types.BuiltinFunctionType)


def kind_of_value(value: Any, tensors: list[Tensor]) -> Any:
    """A key for an argument. Two arguments with equal keys are alike for a graph; the tensors in
    it, which may differ in their elements, are added to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value.array
        return type(value), array.shape, array.dtype, value.device, value.requires_grad
    if isinstance(value, PLAIN):
        return type(value), value or repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, (tuple, list)):
        return type(value), tuple(kind_of_value(item, tensors) for item in value)
    if isinstance(value, dict):
        items = [(name, kind_of_value(item, tensors)) for name, item in value.items()]
        return type(value), tuple(items)
    return id(value)  # what is inside is watched


def objects_in(value: Any) -> list:
    """The arguments for which a key has only their id."""
    if isinstance(value, (tuple, list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [found for item in items for found in objects_in(item)]
    return [] if isinstance(value, (Tensor, *PLAIN)) else [value]


def call_key(args: tuple, kwargs: dict, modes: tuple) -> tuple[tuple, list[Tensor]]:
    """(what a graph for this call depends on, the tensors among the arguments)."""
    tensors: list[Tensor] = []
    key = kind_of_value(args, tensors), kind_of_value(kwargs, tensors) if kwargs else None
    places = {id(tensor): number for number, tensor in enumerate(tensors)}
    alike = () if len(places) == len(tensors) else tuple(places[id(tensor)] for tensor in tensors)
    return (*key, alike, state.grad_enabled, state.inference, Defaults.dtype, modes), tensors


class Watch:
    """The Python values that a function can see: attributes of its modules, variables of the
    functions that enclose it, the globals that its code names.

    A graph holds what these were when it was traced. `changed` says what has changed since.
    """

    def __init__(self, root: Any):
        self.entries: list[tuple[Any, Any, Any]] = []  # (container, key, value)
        self.sizes: list[tuple[Any, int]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.tensors: list[Tensor] = []
        self.seen: set[int] = set()
        self.keep: list = []  # an id in `seen` is not used again
        self.visit(root)

    def visit(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.keep.append(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, (tuple, list)):
            self.contents(value, enumerate(value))
        elif isinstance(value, dict):
            self.contents(value, value.items())
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
            self.contents(vars(value), vars(value).items())
            self.visit(getattr(type(value), "forward", None))

    def contents(self, container: Any, items: Any) -> None:
        if not isinstance(container, tuple):
            self.sizes.append((container, len(container)))
        for key, item in list(items):
            if not isinstance(container, tuple):
                self.entries.append((container, key, item))
            self.visit(item)

    def function(self, function: types.FunctionType) -> None:
        if function.__module__.partition(".")[0] == "tinytorch":
            return  # the package's own functions depend on nothing else
        names = function.__globals__
        for name in names_in(function.__code__):
            if name in names:
                self.entries.append((names, name, names[name]))
                self.visit(names[name])
        for cell in function.__closure__ or ():
            try:
                self.cells.append((cell, cell.cell_contents))
            except ValueError:
                continue  # a variable that is not there yet
            self.visit(cell.cell_contents)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.visit(getattr(function, "__wrapped__", None))

    def changed(self) -> str | None:
        """What is not as it was, in words; None where all is."""
        try:
            for container, key, value in self.entries:
                now = container[key]
                if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                    return f"{key} is {now!r:.60}, and was {value!r:.60}"
        except (KeyError, IndexError):
            return f"{key} is gone"
        for container, size in self.sizes:
            if len(container) != size:
                return f"something was added to, or removed from, {list(container)!r:.80}"
        for cell, value in self.cells:
            now = cell.cell_contents
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"a variable of the enclosing function is {now!r:.60}, was {value!r:.60}"
        return None


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (bool(a) or repr(a) == repr(b))


def names_in(code: types.CodeType) -> Iterator[str]:
    """The globals and attributes that some code names, those of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def describe_modes(modes: tuple[FunctionMode, ...]) -> tuple | None:
    """A key for the open modes, or None where one of them has to see each call as it happens.

    autocast only decides about types: a graph can hold its casts.
    """
    if not all(isinstance(mode, autocast) for mode in modes):
        return None
    return tuple((mode.device_type, mode.dtype, mode.one_type) for mode in modes)
