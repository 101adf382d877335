"""Step pickle01: A machine of our own for pickles

Step 78a: a pickle is a program, and a Reader that answers find_class from a table is closed. It
still runs Python's own machine, with all of its opcodes. Here is a machine that lacks the two that
look up and call. It cannot run code, whatever the file says: there is no code for it.

The program runs on a stack machine: its opcodes take values from the end of a list, the stack, and
push others there. Each opcode is a byte. These build {"a": [1, 2]}:

    }   push an empty dict              K 1   push the number 1
    X   push the string "a"             K 2   push the number 2
    ]   push an empty list              e     append all above the mark to the list below it
    (   set a mark                      s     set an item of the dict: the key, then the value

A program begins with the version of the format ("protocol 2" in PyTorch's files), and ends with
`.`, which stops the machine. About thirty opcodes are enough for plain values.

Nested values need no recursion here: a million lists inside each other are just a million pushes.

PyTorch's files contain such a pickle. torch.load has a machine like ours for weights_only=True,
which is the default since version 2.6.

New: Unpickler, pushes, counts; a new module begins. Moved: tinytorch/utils/data/worker.py.
Try: take pickle.APPENDS out of its `case`, and run the demo.
"""

import pickle
from collections.abc import Callable
from typing import Any

# Opcodes that push a value and take nothing from the stack.
pushes: dict[bytes, Callable[["Unpickler"], Any]] = {
    pickle.NONE: lambda machine: None,
    pickle.NEWTRUE: lambda machine: True,
    pickle.NEWFALSE: lambda machine: False,
    pickle.EMPTY_LIST: lambda machine: [],
    pickle.EMPTY_DICT: lambda machine: {},
    pickle.BININT1: lambda machine: machine.number(1),
    pickle.BINUNICODE: lambda machine: machine.take(machine.number(4)).decode(*UTF8),
}
# How many values an opcode takes from the stack. All others take what lies above the last mark.
counts = {pickle.APPEND: 1, pickle.SETITEM: 2}

UTF8 = "utf-8", "surrogatepass"  # Python's strings may hold half a pair of surrogates


class Unpickler:
    """Runs a pickle of protocol 2. It needs no recursion, and imports nothing."""

    def __init__(self, program: bytes):
        self.program, self.position = program, 0
        self.stack: list = []
        self.marks: list[int] = []  # heights of the stack

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
    import contextlib
    import io
    from pickletools import genops, optimize

    # `optimize` leaves out what step pickle02 adds.
    value = {"a": [1, 2], "b": [None, True, False], "c": [{}, [[7]]], "d": {"x": "y"}}
    program = optimize(pickle.dumps(value, protocol=2))
    print(Unpickler(program).run() == value)  # -> True

    # The program of a small value, as Python's own tool shows it.
    small = optimize(pickle.dumps({"a": [1, 2]}, protocol=2))
    shown = [opcode.name + f" {arg}" * (arg is not None) for opcode, arg, _ in genops(small)]
    print(*shown[1:4], sep=", ")  # -> EMPTY_DICT, BINUNICODE a, EMPTY_LIST
    print(*shown[4:], sep=", ")  # -> MARK, BININT1 1, BININT1 2, APPENDS, SETITEM, STOP

    # Depth costs nothing: 100,000 lists are pushed, and `a` appends each to the one below.
    deep = Unpickler(b"\x80\2" + b"]" * 100_000 + b"a" * 99_999 + b".").run()
    print(len(deep), len(deep[0]))  # -> 1 1

    # A pickle that calls a function. Python runs it; here there is nothing that could.
    class Trap:
        def __reduce__(self):
            return print, ("a pickle calls what it likes",)

    trap = pickle.dumps(Trap(), protocol=2)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        pickle.loads(trap)
    print("Python:", said.getvalue().strip())  # -> Python: a pickle calls what it likes
    for wrong in (trap, program[:20], pickle.dumps(1, protocol=4)):
        try:
            Unpickler(wrong).run()
        except (ValueError, EOFError) as error:
            print("here:", error)
    # -> here: the pickle has the opcode b'c', which is not run here
    # -> here: the pickle ends too early
    # -> here: this is not a pickle of protocol 2, which torch.save() writes

    # What is wrong still: a list that is in two places needs two more opcodes.
    row = [1]
    try:
        Unpickler(optimize(pickle.dumps([row, row], protocol=2))).run()
    except ValueError as error:
        print(error)  # -> the pickle has the opcode b'q', which is not run here
