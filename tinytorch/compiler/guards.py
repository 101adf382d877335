"""What a traced graph holds for: the kinds of its arguments, and the Python values around it."""

import array
import contextlib
import datetime
import dis
import functools
import gc
import mmap
import random
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.modes import FunctionMode
from tinytorch.compiler.capture import OWN, Break, attributes_of
from tinytorch.compiler.tracer import line_of_the_program
from tinytorch.core.device import Device
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import initial_seed
from tinytorch.ops.shape import is_contiguous, stride

LARGE = 1 << 20  # bytes of an array: comparing more than these at each call would take too long
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
IMPORTS = ("IMPORT_NAME",)
# getattr(x, "scale") names an attribute too.
ATTRIBUTES = (
    "LOAD_ATTR",
    "LOAD_METHOD",
    "LOAD_SUPER_ATTR",
    "STORE_ATTR",
    "IMPORT_FROM",
    "LOAD_CONST",
)
# Methods that are called although no code names them: operators and their like.
UNNAMED = {"forward", "__call__", "__getattr__", *dir(int), *dir(dict)} - {"__init__"}
# What modules have for state_dict() and load_state_dict(): a call does not read it.
NOT_FOR_CALLS = {"_non_persistent", "_load_state_dict_pre_hooks"}
LIBRARIES = {"tinytorch", "numpy", *sys.stdlib_module_names}
CLOCKS = {datetime.datetime.now, datetime.datetime.utcnow, datetime.date.today}
ONCE = {print, input, globals, threading.get_ident, threading.get_native_id, *CLOCKS}
# Modules of Python whose functions and types ask, or change, the world outside: files, clocks ...
OUTSIDE = {"posix", "nt", "io", "_io", "time", "_contextvars", "_socket", "select"}
PURE = {"fspath", "_path_normpath", "_path_splitroot", "_path_splitroot_ex"}  # of texts only
# Where these are called for Python or for the package: no part of what a function means.
OUTER = "importlib warnings numpy._core".split()
MACHINERY = OUTER + "tinytorch.compiler.build tinytorch.compiler.capture tinytorch.kernels".split()
# Facts for which no guard looks at each call.
ASKED = {
    **{Tensor.grad.fget.__code__: "a tensor's grad", initial_seed.__code__: "initial_seed()"},
    **{x.__wrapped__.__code__: f"{x.__name__}()" for x in (is_contiguous, stride)},
    **{Tensor.numpy.__code__: "numpy()", Tensor.backward.__code__: "backward()"},
}
MISSING = object()
STREAMS = (random.Random, np.random.Generator, np.random.RandomState)
PLAIN = (bool, int, float, str, bytes, type(None), DType, Device, type, types.BuiltinFunctionType)


def kind_of_value(value: Any, tensors: list[Tensor]) -> Any:
    """A key for an argument. Two arguments with equal keys are alike for a graph; the tensors in
    it, which may differ in their elements, are added to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value.array
        own = None  # attributes that the program has given it: most tensors have none
        if not OWN.issuperset(value.__dict__):
            own = kind_of_value(attributes_of(value), tensors)
        return type(value), array.shape, array.dtype, value.device, value.requires_grad, own
    if isinstance(value, PLAIN):
        return type(value), value or repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, (tuple, list)):
        return type(value), tuple([kind_of_value(item, tensors) for item in value])
    if isinstance(value, dict):
        items = [(name, kind_of_value(item, tensors)) for name, item in value.items()]
        return type(value), tuple(items)
    return id(value)  # what is inside is watched


def objects_in(value: Any) -> list:
    """The arguments for which a key has only their id."""
    if isinstance(value, Tensor):
        value = attributes_of(value)
    if isinstance(value, (tuple, list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [found for item in items for found in objects_in(item)]
    return [] if isinstance(value, PLAIN) else [value]


def call_key(args: tuple, kwargs: dict, modes: tuple) -> tuple[tuple, list[Tensor]]:
    """(what a graph for this call depends on, the tensors among the arguments)."""
    tensors: list[Tensor] = []
    key = kind_of_value(args, tensors), kind_of_value(kwargs, tensors) if kwargs else None
    alike: tuple = ()
    if len(tensors) > 1:
        places = {id(tensor): number for number, tensor in enumerate(tensors)}
        if len(places) < len(tensors):
            alike = tuple(places[id(tensor)] for tensor in tensors)
    return (*key, alike, state.grad_enabled, state.inference, Defaults.dtype, modes), tensors


class Watch:
    """The Python values that a function can see: attributes of its modules, variables of the
    functions that enclose it, the globals that its code names.

    A graph holds what these were when it was traced. `changed` says what has changed since.
    """

    def __init__(self, root: Any):
        self.entries: list[tuple[Any, Any, Any]] = []  # (container, key, value)
        self.fields: list[tuple[Any, str, Any]] = []  # (object, name, value): not in a container
        self.functions: list[tuple] = []  # (function, code, defaults)
        self.sizes: list[tuple[Any, int]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.copies: list[tuple[Any, Callable, Any]] = []  # (object, how it was copied, its copy)
        self.tensors: list[Tensor] = []
        self.streams: list[Any] = []  # random numbers that are not the package's
        self.seen: set[int] = set()
        self.keep: list = []  # an id in `seen` is not used again
        self.used: set[str] = set()  # the attributes that code names
        self.classes: list[type] = []  # of the program
        self.modules: list[types.ModuleType] = []
        self.visit(root)
        self.named_attributes()
        self.dicts = [vars(tensor) for tensor in self.tensors]
        self.lengths = [*map(len, self.dicts)]
        self.before = [(each, dict(vars(each))) for each in self.classes]

    def visit(self, value: Any) -> None:
        if isinstance(value, type):
            new = [each for each in value.__mro__ if not is_library(each)]
            self.classes += [each for each in new if each not in self.classes]
        if isinstance(value, PLAIN) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.keep.append(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            for name, item in attributes_of(value).items():
                self.entries.append((vars(value), name, item))
                self.visit(item)
        elif isinstance(value, (tuple, list)):
            self.contents(value, enumerate(value))
        elif isinstance(value, dict):
            self.contents(value, value.items())
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self.visit(value.__func__)
        elif isinstance(value, property):
            self.visit(value.fget)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords))
        elif isinstance(value, STREAMS):
            self.streams.append(value)
        elif how := how_to_copy(value):
            self.copies.append((value, how, how(value)))
            for item in value if how is list else ():
                self.visit(item)
        elif isinstance(value, frozenset):
            self.visit(tuple(value))
        elif isinstance(value, types.MappingProxyType):
            self.visit(*gc.get_referents(value))
        elif hasattr(type(value), "__next__"):
            raise Break(f"the function can see {value!r:.60}: what is next is not known")
        elif isinstance(value, threading.local) and "tinytorch" not in type(value).__module__:
            raise Break(f"the function can see {value!r:.60}: another thread finds other values")
        elif isinstance(value, types.ModuleType):
            self.modules.append(value)  # what it holds is watched if code names it
        else:
            self.slots(value)
            if hasattr(value, "__dict__"):
                self.contents(vars(value), vars(value).items())
            self.visit(type(value))

    def slots(self, value: Any) -> None:
        """Notes the attributes that an object has without a dict."""
        for each in type(value).__mro__:
            for name, slot in () if is_library(each) else vars(each).items():
                if isinstance(slot, types.MemberDescriptorType):
                    self.field(value, name)

    def field(self, value: Any, name: str) -> None:
        """Notes an attribute that is in no container."""
        item = getattr(value, name, MISSING)
        self.fields.append((value, name, item))
        self.visit(item)

    def contents(self, container: Any, items: Any) -> None:
        if not isinstance(container, tuple):
            self.sizes.append((container, len(container)))
        for key, item in list(items):
            if key in NOT_FOR_CALLS:
                continue
            if not isinstance(container, tuple):
                self.entries.append((container, key, item))
            self.visit(item)

    def function(self, function: types.FunctionType) -> None:
        if is_library(function):
            return  # what it returns depends on its arguments only
        self.used.update(names_in(function.__code__, ATTRIBUTES))
        self.variables(function.__globals__, function.__code__)
        for cell in function.__closure__ or ():
            try:
                self.cells.append((cell, cell.cell_contents))
            except ValueError:
                continue  # a variable that is not there yet
            self.visit(cell.cell_contents)
        self.functions.append((function, function.__code__, function.__defaults__))
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.visit(getattr(function, "__wrapped__", None))

    def variables(self, names: dict[str, Any], code: types.CodeType) -> None:
        """Notes the variables of a module that code names, and the modules that it imports."""
        for name in set(names_in(code, GLOBALS)):
            if name in names:
                self.entries.append((names, name, names[name]))
                self.visit(names[name])
        for name in names_in(code, IMPORTS):
            for whole in (name, name.partition(".")[0], f"{names.get('__package__')}.{name}"):
                self.visit(sys.modules.get(whole))

    def named_attributes(self) -> None:
        """Notes what classes and modules hold under names that code uses, until no new names turn
        up. Of what a library holds, only modules and lists are looked into."""
        done: set[tuple] = set()
        while (
            new := {
                (holder, name)
                for holders, names in (
                    (self.classes, self.used | UNNAMED),
                    (self.modules, self.used),
                )
                for holder in holders
                for name in names & vars(holder).keys()
            }
            - done
        ):
            done |= new
            for holder, name in new:
                value = vars(holder)[name]
                self.entries.append((vars(holder), name, value))
                own = isinstance(holder, type) or holder.__name__.partition(".")[0] not in LIBRARIES
                if own or isinstance(value, (types.ModuleType, list)):
                    self.visit(value)

    def changed(self) -> str | None:
        """What is not as it was, in words; None where all is."""
        try:
            for container, key, value in self.entries:
                now = container[key]
                if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                    return f"{key} is {now!r:.60}, and was {value!r:.60}"
        except (KeyError, IndexError):
            return f"{key} is gone"
        for each, name, value in self.fields:
            now = getattr(each, name, MISSING)
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"{name} of {each!r:.60} is not what it was"
        for function, code, defaults in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return f"the function {function.__name__} has another code, or other defaults"
        if self.lengths != [*map(len, self.dicts)]:
            noted = {(id(container), key) for container, key, _ in self.entries}
            for tensor, attributes in zip(self.tensors, self.dicts, strict=True):
                for name in attributes_of(tensor):
                    if (id(attributes), name) not in noted:
                        return f"a tensor has got an attribute '{name}'"
            self.lengths = [*map(len, self.dicts)]  # it was the package's own: a gradient
        for container, size in self.sizes:
            if len(container) != size:
                return f"something was added to, or removed from, {list(container)!r:.80}"
        for value, how, copy in self.copies:
            if differ(how(value), copy):
                return f"the contents of {value!r:.60} have changed"
        for cell, value in self.cells:
            now = cell.cell_contents
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"a variable of the enclosing function is {now!r:.60}, was {value!r:.60}"
        return None

    def restore(self) -> None:
        """Puts back what has changed: the function is going to run once more."""
        known = {(id(container), key) for container, key, _ in self.entries}
        for container, size in self.sizes:
            if isinstance(container, list):
                del container[size:]
            else:
                for key in container.keys() - NOT_FOR_CALLS:
                    if (id(container), key) not in known:
                        del container[key]
        for container, key, value in self.entries:
            if isinstance(container, list):
                container[key : key + 1] = [value]
            elif isinstance(container, dict) and container.get(key, self) is not value:
                container[key] = value
        for each, name, value in self.fields:
            if value is not MISSING:
                setattr(each, name, value)
            elif hasattr(each, name):
                delattr(each, name)
        for each, before in self.before:
            for name in vars(each).keys() - before.keys():
                delattr(each, name)
            for name, value in before.items():
                if vars(each).get(name, self) is not value:
                    setattr(each, name, value)
        for cell, value in self.cells:
            cell.cell_contents = value
        for value, how, copy in self.copies:
            if differ(how(value), copy):
                put_back(value, copy)


def state_of(stream: Any) -> Any:
    """The state of random numbers of Python (random, random.Random) or NumPy (np.random,
    RandomState, Generator)."""
    if hasattr(stream, "getstate"):
        return stream.getstate()
    return stream.get_state() if hasattr(stream, "get_state") else stream.bit_generator.state


def set_state(stream: Any, value: Any) -> None:
    """Gives random numbers the state that state_of has returned."""
    if hasattr(stream, "setstate"):
        stream.setstate(value)
    elif hasattr(stream, "set_state"):
        stream.set_state(value)
    else:
        stream.bit_generator.state = value


def listen(frame: Any, event: str, called: Any) -> None:
    """Python calls this for each call of a program (sys.setprofile)."""
    what = None
    if event == "c_call" and (called in ONCE or is_outside(called)) and not is_machinery(frame):
        what = f"{called.__name__}()"
    elif event == "call" and frame.f_code in ASKED:
        caller, what = frame.f_back.f_globals.get("__name__", ""), ASKED[frame.f_code]
        if what != "a tensor's grad" and caller.startswith("tinytorch."):
            what = None  # the package decides how, not what
    if what:
        raise Break(f"{line_of_the_program()}: {what} is not part of a graph")


def is_outside(called: Any) -> bool:
    """Whether a function of C asks or changes what is outside of the program."""
    where = called.__module__ or type(called.__self__).__module__
    return where in OUTSIDE and called.__name__ not in PURE


def is_machinery(frame: Any) -> bool:
    """Whether Python's import, a warning or the package's own use of a C compiler is at work."""
    while frame and (name := frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
        if name.startswith((*MACHINERY,)):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def no_effects(found: list) -> Iterator[None]:
    """Around a trace: stops a function that does what a graph would not do again.

    It may not draw random numbers that are not the package's (`found` are those that it sees);
    what it has drawn is put back. Nor may it call what is in ONCE, if no other profiler listens.

    Raises:
        Break: the function did one of these.
    """
    streams, others = [random, np.random, *found], sys.getprofile()
    before = [state_of(stream) for stream in streams]
    if others is None:
        sys.setprofile(listen)
    try:
        yield
    finally:
        if others is None:
            sys.setprofile(None)
        after = [state_of(stream) for stream in streams]
        for stream, state_before in zip(streams, before, strict=True):
            set_state(stream, state_before)
    if str(after) != str(before):
        raise Break("the function draws random numbers from outside of the package")


def is_constant(value: Any) -> bool:
    """Whether an array is read-only, and so is the memory that it shows."""
    while isinstance(value, np.ndarray) and not value.flags.writeable and not value.dtype.hasobject:
        value = value.base
    return value is None or isinstance(value, (bytes, mmap.mmap))


def how_to_copy(value: Any) -> Callable | None:
    """For an array or collection whose contents may change: the function that copies them.

    Raises:
        Break: an array is too large to be compared at each call, or holds objects.
    """
    if isinstance(value, np.ndarray) and not is_constant(value):
        if value.nbytes > LARGE or value.dtype.hasobject:
            raise Break(
                f"the function can see an array of {value.nbytes:,} bytes that may change: make it "
                "a tensor, or read-only (array.flags.writeable = False)"
            )
        return np.ndarray.tobytes
    return list if isinstance(value, (set, deque, bytearray, array.array)) else None


def put_back(value: Any, copy: Any) -> None:
    """Gives an array or collection the contents that how_to_copy's function has copied."""
    if isinstance(value, np.ndarray):
        value[...] = np.frombuffer(copy, value.dtype).reshape(value.shape)
        return
    while value:
        value.pop()
    (value.update if isinstance(value, set) else value.extend)(copy)


def differ(a: Any, b: Any) -> bool:
    """Whether what how_to_copy has copied differs."""
    if isinstance(a, list):
        pairs = zip(a, b, strict=False)
        alike = all(x is y or (isinstance(y, PLAIN) and same(x, y)) for x, y in pairs)
        return len(a) != len(b) or not alike
    return a != b


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (bool(a) or repr(a) == repr(b))


def is_library(value: Any) -> bool:
    """Whether a class or function is the package's, NumPy's or Python's own."""
    return (value.__module__ or "").partition(".")[0] in LIBRARIES


def names_in(code: types.CodeType, opcodes: tuple[str, ...]) -> Iterator[str]:
    """The names that instructions of these kinds use in some code, and in functions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in opcodes and isinstance(instruction.argval, str):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant, opcodes)


def describe_modes(modes: tuple[FunctionMode, ...]) -> tuple | None:
    """A key for the open modes, or None where one of them has to see each call as it happens.

    autocast only decides about types: a graph can hold its casts.
    """
    if not all(isinstance(mode, autocast) for mode in modes):
        return None
    return tuple((mode.device_type, mode.dtype, mode.one_type) for mode in modes)
