"""Step pickle02: The memo of the stack machine, and tuples

The machine of step pickle01 cannot read most pickles. If a list is in two places, Python writes it
once, and notes it in a memo under a number:

    q 1   note the top of the stack as number 1          h 1   push what has number 1

So the list is one list again afterwards: a change at one place is seen at the other. Python notes
every list, dict, tuple and string, in case it occurs again, so `q` is the most frequent opcode.

A tuple cannot be filled after it is made. So its items come first, and one opcode makes a tuple of
them: of all above the mark, or of the top one, two or three.

The trap: a number that was never noted. `h 5` raises KeyError in the demo. A loader has to expect
this, like all other faults of a damaged file (step files09).

Changed: Unpickler.__init__, Unpickler.run, pushes, counts.
Try: note copy.copy(stack[-1]) instead. Which lines of the demo change?
"""

import pickle
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

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

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


if __name__ == "__main__":
    value = {"a": [1, 2], "b": (None, True, False), "c": [{}, [], ()], (1,): "x"}
    value["d"] = [(1, 2), (1, 2, 3, 4), value["a"], [7], ("x", 1, 2)]
    program = pickle.dumps(value, protocol=2)
    print(Unpickler(program).run() == value)  # -> True

    # What is shared stays shared.
    loaded = Unpickler(program).run()
    loaded["a"].append(3)
    print(loaded["d"][2])  # -> [1, 2, 3]

    # By hand: a list, noted as number 5; 1 is appended; the list again; a tuple of the top two.
    pair = Unpickler(b"\x80\2" + b"]" + b"q\5" + b"K\1" + b"a" + b"h\5" + b"\x86" + b".").run()
    print(pair, pair[0] is pair[1])  # -> ([1], [1]) True
    try:
        Unpickler(b"\x80\2" + b"h\5.").run()
    except KeyError as error:
        print("KeyError:", error)  # -> KeyError: 5
