"""Step pickle05: Writing shared values: the memo

Step pickle04 writes a list in two places as two lists. Two layers with tied weights, which share
one tensor, would come back with two, which start equal and then learn different things. And a list
that contains itself is written without end: Python raises RecursionError.

The machine has a memo for this (step pickle02): an opcode notes the top of the stack under a
number, and another pushes the value with that number. So the writer remembers the number of each
value, and writes the number when the value occurs again. It looks for the same object, not for an
equal one: it compares by id().

A list gets its number before its items are written. So the number is there when the list occurs
inside itself. A tuple gets its number when it is complete: it is made of its items at once.

The trap: an id is valid only as long as its value lives. A temporary list that dies gives its id to
the next one, which would be written as the number of the first. So the memo keeps the value too.

Python's writer uses two sizes of numbers in the memo, one byte and four. We read both, and write
the long one.

Changed: Pickler.__init__, Pickler.write; pushes, Unpickler.run.
Try: write `self.memo[id(value)] = len(self.memo), None`, and find the line of the demo that fails.
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
    pickle.LONG_BINGET: lambda machine: machine.memo[machine.number(4)],
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


if __name__ == "__main__":

    def written(value):
        pickler = Pickler()
        pickler.write(value, "the value")
        return bytes(pickler.program) + pickle.STOP

    # A list in two places, and one that contains itself.
    row = [1.0]
    one, two = Unpickler(written([row, row])).run()
    print(one is two)  # -> True
    row.append(row)
    again = Unpickler(written(row)).run()
    print(again[1] is again)  # -> True
    print(written([7]))  # -> b'\x80\x02]r\x00\x00\x00\x00(\x8a\x01\x07e.'

    # 300 values: their numbers in the memo need more than a byte.
    many = [[n] for n in range(300)]
    print(Unpickler(pickle.dumps(many + many, protocol=2)).run() == many + many)  # -> True

    # A pair of pairs of pairs: 2^60 parts, and 60 to write.
    pair = ()
    for _ in range(60):
        pair = (pair, pair)
    print(len(written(pair)) < 1000)  # -> True

    # Three lists, each of which may get the id of the one before.
    pickler = Pickler()
    for number in range(3):
        pickler.write([number], "the value")
    print(pickler.program.count(pickle.EMPTY_LIST))  # -> 3
