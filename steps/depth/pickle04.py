"""Step pickle04: Writing a pickle

Step pickle03 writes single numbers and strings. For the rest we could take Python's writer, but it
cannot write what we will need: the names of PyTorch's functions, where PyTorch is not installed. So
we write our own. It writes what the machine reads:

    a value without parts    its bytes, from the table `atoms`
    a tuple                  mark, the items, TUPLE
    a list                   an empty list, mark, the items, APPENDS
    a dict                   an empty dict, mark, key, value, key, value, ..., SETITEMS

The items are written by the same function, so `write` is recursive.

What cannot be written is refused, with its place in the value: a file that Python could load and
we could not would be of no use.

The trap: the type has to be exactly list or dict. A subclass may have attributes, which would be
lost without an error in a plain list; step pickle07 writes the subclasses that it knows.

New: Pickler.
Try: write a list that contains itself.
"""

import pickle
import struct
from collections.abc import Callable
from typing import Any

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
}
# How many values an opcode takes from the stack. All others take what lies above the last mark.
counts = {pickle.TUPLE1: 1, pickle.TUPLE2: 2, pickle.TUPLE3: 3, pickle.APPEND: 1, pickle.SETITEM: 2}

UTF8 = "utf-8", "surrogatepass"  # Python's strings may hold half a pair of surrogates


class Unpickler:
    """Runs a pickle of protocol 2. It needs no recursion, and imports nothing."""

    def __init__(self, program: bytes):
        self.program, self.position = program, 0
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

    def pop_items(self, opcode: bytes) -> list:
        start = len(self.stack) - counts[opcode] if opcode in counts else self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

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
                case pickle.BINPUT:
                    self.memo[self.number(1)] = stack[-1]
                case pickle.TUPLE | pickle.TUPLE1 | pickle.TUPLE2 | pickle.TUPLE3:
                    stack.append(tuple(self.pop_items(opcode)))
                case pickle.APPEND | pickle.APPENDS:
                    items = self.pop_items(opcode)
                    stack[-1].extend(items)
                case pickle.SETITEM | pickle.SETITEMS:
                    items = self.pop_items(opcode)
                    stack[-1].update(zip(items[::2], items[1::2], strict=True))
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

    def write(self, value: Any, path: str) -> None:
        """Append the opcodes that push `value`. `path` says in a message where the value is."""
        kind = type(value)
        if kind in atoms:
            self.program += atoms[kind](value)
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
        if kind is list:
            self.write_items(value, path, pickle.APPENDS)
        if kind is dict:
            self.program += pickle.MARK
            for key, item in value.items():
                self.write(key, f"a key of {path}")
                self.write(item, f"{path}[{key!r}]")
            self.program += pickle.SETITEMS

    def write_items(self, values: list | tuple, path: str, opcode: bytes) -> None:
        self.program += pickle.MARK
        for place, item in enumerate(values):
            self.write(item, f"{path}[{place}]")
        self.program += opcode


if __name__ == "__main__":

    def written(value):
        pickler = Pickler()
        pickler.write(value, "the value")
        return bytes(pickler.program) + pickle.STOP

    value = {"epoch": 3, "lr": 1e-3, "big": -(2**200), "name": "l\u00f6s", "none": (None, True, ())}
    print(Unpickler(written(value)).run() == value)  # -> True
    print(pickle.loads(written(value)) == value)  # -> True
    print(written([7]))  # -> b'\x80\x02](\x8a\x01\x07e.'
    try:
        written({"a": [1, print]})
    except TypeError as error:
        print(str(error).split(";")[0])
    # -> cannot save a builtins.builtin_function_or_method (the value['a'][1])

    # What is wrong still: a list in two places becomes two lists.
    row = [1.0]
    one, two = Unpickler(written([row, row])).run()
    print(one is two)  # -> False
