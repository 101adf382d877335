"""Step pickle03: Numbers and texts as bytes

The machine reads integers from 0 to 255, but no others and no floats. And we have nothing yet that
writes. This step does both for values without parts: None, booleans, numbers and strings. Each is
an opcode, followed by the bytes of the value:

    M       2 bytes                        an integer from 0 to 65535
    J       4 bytes                        an integer from -2^31 to 2^31 - 1
    LONG1   a length n, then n bytes       an integer of up to 255 bytes
    G       8 bytes                        a float, as IEEE 754 has it
    X       a length in 4 bytes, UTF-8     a string

Integers have the least significant byte first, and negative ones are in two's complement; floats
have the byte with the sign first. Python's writer chooses the shortest form for each integer. We
read all of them, and always write LONG1, which fits any.

The trap: the length in bytes of a signed number. 255 has 8 bits, but in one byte its top bit would
be read as the sign. So we take bit_length() // 8 + 1 bytes, which leaves room for the sign.

New: atoms, push_int, push_str. Changed: pushes, Unpickler.number.
Try: write (value.bit_length() + 7) // 8 in push_int. Which numbers fail?
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


if __name__ == "__main__":

    def again(value):
        program = pickle.PROTO + b"\2" + atoms[type(value)](value) + pickle.STOP
        assert pickle.loads(program) == value  # Python reads it, too
        return Unpickler(program).run()

    print([again(value) for value in (None, True, False, "l\u00f6s", 1e-3)])
    # -> [None, True, False, 'lös', 0.001]
    print([again(value) for value in (0, 127, 255, -1, 70_000, -(2**40))])
    # -> [0, 127, 255, -1, 70000, -1099511627776]
    print(again(2**2000) == 2**2000, atoms[int](255))  # -> True b'\x8a\x02\xff\x00'

    # What Python's writer makes of numbers.
    numbers = [0, 255, 256, -1, 70_000, 2**40, float("inf"), -0.0]
    print(Unpickler(pickle.dumps(numbers, protocol=2)).run())
    # -> [0, 255, 256, -1, 70000, 1099511627776, inf, -0.0]
    try:
        push_int(2**3000)
    except ValueError as error:
        print(error)  # -> cannot save an integer of 376 bytes; 255 is the limit
