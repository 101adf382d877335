"""Step pickle06: Reading calls: names looked up in a table

A set, bytes, an OrderedDict: protocol 2 has no opcodes for them. A pickle calls functions to make
them, by the two opcodes that we left out:

    c collections OrderedDict       push the function of this name (two lines of text)
    )                               push the arguments: an empty tuple
    R                               call: take both, push the result

What made them dangerous is how Python finds the function: it imports whatever module the file
names. So `name` looks in a table instead, plain_names. (It has Python 2's names for modules, as
protocol 2 does: __builtin__ is builtins.) What is not there is refused, and the error gives the
name. It also says what to do: PyTorch's files often contain a whole object, or a NumPy number,
where a state_dict() and a Python number were meant.

A function from the table is safe only with the arguments that it expects. set(x) goes through all
of x, and x could be a view with a billion elements on one byte of memory. So the table also says
which types a function gets.

The trap: `encode` is a function of ours with the name of Python's. Python's would look up an
encoding by any name, and import it.

New: Call, encode, plain_names; Unpickler.line, name and call. Changed: Unpickler takes a table.
Try: add "__builtin__.print": Call(print, (str,)) to the table, and run the demo's `set_of` program
with print in place of set.
"""

import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple


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


class Unpickler:
    """Runs a pickle of protocol 2. It needs no recursion, and imports nothing.

    Args:
        program: the pickle.
        names: what the program may name: values, and functions to call as `Call`.
    """

    def __init__(self, program: bytes, names: dict[str, Any]):
        self.program, self.names = program, names
        self.position = 0
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

    def call(self, call: Call, args: tuple) -> Any:
        if tuple(map(type, args)) != call.types[: len(args)]:
            raise ValueError("the pickle calls a function with arguments of other types")
        return call.function(*args)

    def run(self) -> Any:
        """The value that the program builds."""
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
                    stack[-1].extend(items)
                case pickle.SETITEM | pickle.SETITEMS:
                    items = self.pop_items(opcode)
                    stack[-1].update(zip(items[::2], items[1::2], strict=True))
                case pickle.REDUCE:
                    args = stack.pop()
                    stack.append(self.call(stack.pop(), args))
                case _:
                    raise ValueError(f"the pickle has the opcode {opcode}, which is not run here")
        return stack.pop()


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
}


class Pickler:
    """Writes a value as a pickle of protocol 2."""

    def __init__(self):
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
        else:
            raise TypeError(
                f"cannot save a {kind.__module__}.{kind.__qualname__} ({path}); save plain values "
                f"and tensors, such as a state_dict()"
            )
        self.remember(value)
        # The items follow when the container has its number: they may contain it.
        if kind is list:
            self.write_items(value, path, pickle.APPENDS)
        if kind is dict:
            self.program += pickle.MARK
            for key, item in value.items():
                self.write(key, f"a key of {path}")
                self.write(item, f"{path}[{key!r}]")
            self.program += pickle.SETITEMS

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


plain_names = {
    "collections.OrderedDict": Call(OrderedDict),
    "collections.Counter": Call(Counter, (dict,)),
    "__builtin__.set": Call(set, (list,)),
    "__builtin__.bytes": Call(bytes),
    "_codecs.encode": Call(encode, (str, str)),
}


if __name__ == "__main__":

    def run(program):
        return Unpickler(program, plain_names).run()

    value = [{1, 2}, b"\x00\xff", b"", OrderedDict(a=1), Counter("aab")]
    print(run(pickle.dumps(value, protocol=2)) == value)  # -> True

    # What is refused: a name that is not in the table, other arguments, another encoding.
    set_of = b"\x80\2c__builtin__\nset\n"
    text = b"X\3\0\0\0abc"
    bytes_of = b"\x80\2c_codecs\nencode\n" + text + b"X\4\0\0\0idna\x86R."
    for program in (pickle.dumps(print, 2), set_of + text + b"\x85R.", bytes_of):
        try:
            run(program)
        except ValueError as error:
            print(str(error).split(";")[0])
    # -> the pickle needs __builtin__.print, which is not run here
    # -> the pickle calls a function with arguments of other types
    # -> the pickle has bytes in 'idna' and not in latin1

    # What we write is read with any table, but we cannot write a set yet.
    pickler = Pickler()
    try:
        pickler.write({1, 2}, "the value")
    except TypeError as error:
        print(str(error).split(";")[0])  # -> cannot save a builtins.set (the value)
