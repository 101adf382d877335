"""Pickles as data: a writer, and an interpreter that knows only the opcodes of plain values.

A pickle is a program for a stack machine. Python's own machine may import any module and call any
function. This one calls the functions that it is given in a table; nothing else can happen.
"""

import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from tinytorch.core.dtype import DType


class Call(NamedTuple):
    """A function that a pickle may call, and the types of the arguments that it may pass."""

    function: Callable
    types: tuple[type, ...] = ()


# Opcodes that push a value and take nothing from the stack.
pushes: dict[bytes, Callable[["Unpickler"], Any]] = {
    pickle.NONE: lambda machine: None,
    pickle.NEWTRUE: lambda machine: True,
    pickle.NEWFALSE: lambda machine: False,
    pickle.EMPTY_TUPLE: lambda machine: (),
    pickle.EMPTY_LIST: lambda machine: [],
    pickle.EMPTY_DICT: lambda machine: {},
    pickle.BININT1: lambda machine: machine.number(1),
    pickle.BININT2: lambda machine: machine.number(2),
    pickle.BININT: lambda machine: machine.number(4, signed=True),
    pickle.LONG1: lambda machine: machine.number(machine.number(1), signed=True),
    pickle.BINFLOAT: lambda machine: struct.unpack(">d", machine.take(8))[0],
    pickle.BINUNICODE: lambda machine: machine.take(machine.number(4)).decode(*UTF8),
    pickle.BINGET: lambda machine: machine.memo[machine.number(1)],
    pickle.LONG_BINGET: lambda machine: machine.memo[machine.number(4)],
    pickle.GLOBAL: lambda machine: machine.name(),
}


# How many values an opcode takes from the stack. All others take what lies above the last mark.
counts = {pickle.TUPLE1: 1, pickle.TUPLE2: 2, pickle.TUPLE3: 3, pickle.APPEND: 1, pickle.SETITEM: 2}


UTF8 = "utf-8", "surrogatepass"  # Python's strings may hold half a pair of surrogates


def expect(value: Any, *types: type) -> Any:
    """`value`, if it is of one of `types` exactly; else ValueError."""
    if type(value) not in types:
        raise ValueError(f"the pickle uses {type(value).__name__} as {types[0].__name__}")
    return value


def check_key(key: Any) -> None:
    """ValueError for a tuple that holds more than 100 values.

    The hash of a tuple takes the hash of all that is in it. A short program can build a tuple for
    which that takes years, or one so deep that it crashes Python.
    """
    parts = [key]
    for part in parts:
        if isinstance(part, tuple):
            parts += part[: 102 - len(parts)]
    if len(parts) > 101:
        raise ValueError("the pickle has a key that holds more than 100 values")


class Unpickler:
    """Runs a pickle of protocol 2. It needs no recursion, and imports nothing.

    Args:
        program: the pickle.
        names: what the program may name: values, and functions to call as `Call`.
        load: returns what a persistent id stands for.
        safe: classes and functions of the user, who says that any file may call them.
    """

    def __init__(
        self,
        program: bytes,
        names: dict[str, Any],
        load: Callable[[Any], Any],
        safe: tuple[Callable, ...] = (),
    ):
        self.program, self.names, self.load, self.safe = program, names, load, safe
        self.position = self.copied = 0
        self.stack: list = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        """The next bytes of the program."""
        self.position += count
        if self.position > len(self.program):
            raise EOFError("the pickle ends too early")
        return self.program[self.position - count : self.position]

    def number(self, count: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(count), "little", signed=signed)

    def line(self) -> str:
        end = self.program.index(b"\n", self.position)
        return self.take(end + 1 - self.position)[:-1].decode()

    def name(self) -> Any:
        """What a name stands for: a look-up in the table, where Python's own machine imports."""
        name = f"{self.line()}.{self.line()}"
        if name not in self.names:
            raise ValueError(
                f"the pickle needs {name}, which is not run here; where it was saved, save a "
                f"state_dict() instead of an object, and item() of a NumPy number"
            )
        return self.names[name]

    def pop_items(self, opcode: bytes) -> list:
        start = len(self.stack) - counts[opcode] if opcode in counts else self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def is_safe(self, value: Any) -> bool:
        return any(value is each for each in self.safe)

    def call(self, call: Any, args: tuple) -> Any:
        if self.is_safe(call):
            return call(*args)
        call = expect(call, Call)
        if tuple(map(type, args)) != call.types[: len(args)]:
            raise ValueError("the pickle calls a function with arguments of other types")
        # Calls copy their arguments. Each of them was written once: all copies together are not
        # larger than the program, unless it copies one long list again and again.
        self.copied += sum(len(arg) for arg in args if isinstance(arg, (str, list, tuple, dict)))
        if self.copied > len(self.program):
            raise ValueError("the pickle copies more than it holds")
        for key in args[0] if call.function is set else ():
            check_key(key)
        return call.function(*args)

    def run(self) -> Any:
        """The value that the program builds. A program that is not sound raises ValueError,
        TypeError, LookupError, ArithmeticError, EOFError or RuntimeError."""
        if self.take(2) != pickle.PROTO + b"\2":
            raise ValueError("this is not a pickle of protocol 2, which torch.save() writes")
        stack = self.stack
        while (opcode := self.take(1)) != pickle.STOP:
            if opcode in pushes:
                stack.append(pushes[opcode](self))
                continue
            match opcode:
                case pickle.MARK:
                    self.marks.append(len(stack))
                case pickle.BINPUT | pickle.LONG_BINPUT:
                    self.memo[self.number(1 if opcode == pickle.BINPUT else 4)] = stack[-1]
                case pickle.TUPLE | pickle.TUPLE1 | pickle.TUPLE2 | pickle.TUPLE3:
                    stack.append(tuple(self.pop_items(opcode)))
                case pickle.APPEND | pickle.APPENDS:
                    items = self.pop_items(opcode)
                    expect(stack[-1], list).extend(items)
                case pickle.SETITEM | pickle.SETITEMS:
                    items = self.pop_items(opcode)
                    target = expect(stack[-1], dict, OrderedDict, Counter)
                    for key, value in zip(items[::2], items[1::2], strict=True):
                        check_key(key)
                        target[key] = value
                case pickle.REDUCE:
                    args = expect(stack.pop(), tuple)
                    stack.append(self.call(stack.pop(), args))
                case pickle.NEWOBJ if self.is_safe(stack[-2]):
                    args, kind = expect(stack.pop(), tuple), expect(stack.pop(), type)
                    stack.append(kind.__new__(kind, *args))
                case pickle.BUILD if self.is_safe(type(stack[-2])):
                    state = stack.pop()
                    getattr(stack[-1], "__setstate__", vars(stack[-1]).update)(state)
                case pickle.BUILD:  # attributes: a state_dict() of PyTorch has _metadata
                    state = expect(stack.pop(), dict)
                    if any(hasattr(OrderedDict, name) for name in state):
                        raise ValueError("the pickle replaces methods of a dictionary")
                    vars(expect(stack[-1], OrderedDict)).update(state)
                case pickle.BINPERSID:
                    stack.append(self.load(stack.pop()))
                case _:
                    raise ValueError(f"the pickle has the opcode {opcode}, which is not run here")
        return stack.pop()


class Name(str):
    """The dotted name of a function or class, to be written as such and not as a string."""


class PersistentId(tuple):
    """Names a value that is stored outside of the pickle."""


def push_name(name: str) -> bytes:
    module, _, function = name.rpartition(".")
    return pickle.GLOBAL + f"{module}\n{function}\n".encode()


def push_int(value: int) -> bytes:
    digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(digits) > 255:
        raise ValueError(f"cannot save an integer of {len(digits)} bytes; 255 is the limit")
    return pickle.LONG1 + bytes([len(digits)]) + digits


def push_str(value: str) -> bytes:
    text = value.encode(*UTF8)
    return pickle.BINUNICODE + len(text).to_bytes(4, "little") + text


# The bytes that push a value which has no parts.
atoms: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: pickle.NONE,
    bool: lambda value: pickle.NEWTRUE if value else pickle.NEWFALSE,
    int: push_int,
    float: lambda value: pickle.BINFLOAT + struct.pack(">d", value),
    str: push_str,
    Name: push_name,
    DType: lambda value: push_name(f"torch.{value.name}"),
}


class Pickler:
    """Writes a value as a pickle of protocol 2.

    Args:
        calls: for types that are written as a call, what gives the function's name and arguments.
    """

    def __init__(self, calls: dict[type, Callable[[Any], tuple]]):
        self.calls = calls
        self.program = bytearray(pickle.PROTO + b"\2")
        # id of a value -> its number in the machine's memo, and the value. As long as the value
        # lives, no other one gets its id.
        self.memo: dict[int, tuple[int, Any]] = {}

    def write(self, value: Any, path: str) -> None:
        """Append the opcodes that push `value`. `path` says in a message where the value is."""
        kind = type(value)
        if kind in atoms:
            self.program += atoms[kind](value)
            return
        if id(value) in self.memo:  # what is shared is written once, and stays shared
            self.program += pickle.LONG_BINGET + self.memo[id(value)][0].to_bytes(4, "little")
            return
        if kind is list or kind is dict:
            self.program += pickle.EMPTY_LIST if kind is list else pickle.EMPTY_DICT
        elif kind is tuple:
            self.write_items(value, path, pickle.TUPLE)
        elif kind is PersistentId:
            self.write(tuple(value), path)
            self.program += pickle.BINPERSID
        elif kind in self.calls:
            name, *args = self.calls[kind](value)
            self.write(Name(name), path)
            self.write(tuple(args), path)
            self.program += pickle.REDUCE
        else:
            raise TypeError(
                f"cannot save a {kind.__module__}.{kind.__qualname__} ({path}); save plain values "
                f"and tensors, such as a state_dict()"
            )
        self.remember(value)
        # The items follow when the container has its number: they may contain it.
        if kind is list:
            self.write_items(value, path, pickle.APPENDS)
        if kind is dict or kind is OrderedDict:
            self.program += pickle.MARK
            for key, item in value.items():
                self.write(key, f"a key of {path}")
                self.write(item, f"{path}[{key!r}]")
            self.program += pickle.SETITEMS
        if kind is OrderedDict and vars(value):
            self.write(vars(value), path)
            self.program += pickle.BUILD

    def remember(self, value: Any) -> None:
        """Gives the value that was pushed last a number, by which it is found again."""
        self.program += pickle.LONG_BINPUT + len(self.memo).to_bytes(4, "little")
        self.memo[id(value)] = len(self.memo), value

    def write_items(self, values: list | tuple, path: str, opcode: bytes) -> None:
        self.program += pickle.MARK
        for place, item in enumerate(values):
            self.write(item, f"{path}[{place}]")
        self.program += opcode


def encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"the pickle has bytes in {encoding!r} and not in latin1")
    return text.encode(encoding)


plain_calls: dict[type, Callable[[Any], tuple]] = {
    OrderedDict: lambda value: ("collections.OrderedDict",),
    Counter: lambda value: ("collections.Counter", dict(value)),
    set: lambda value: ("__builtin__.set", list(value)),  # as Python 2 called the module
    bytes: lambda value: ("_codecs.encode", value.decode("latin1"), "latin1"),
}


plain_names = {
    "collections.OrderedDict": Call(OrderedDict),
    "collections.Counter": Call(Counter, (dict,)),
    "__builtin__.set": Call(set, (list,)),
    "__builtin__.bytes": Call(bytes),
    "_codecs.encode": Call(encode, (str, str)),
}
