"""Step tracer01: A trace: a mode records the calls of a program

A small operation spends its time in Python, not in arithmetic. In x * 2 with four numbers, NumPy
takes less than a third of the time. The rest goes into finding out which classes, shapes and types
meet, and in each step of a training the answer is the same. To compute each operation when it is
called, as we have done so far, is called "eager". A program that does the same again and again can
be analysed once, and then run faster. A compiler does that, and this stage builds one.

First, the compiler has to know what the program does. The source text is a poor place to look: it
has loops, `if`s, modules in modules, and functions from other files. But all of it ends in calls of
Functions, and a mode sees each call (step 65d). So run the program once, and record the calls.
The record is called a trace.

`tensors_in`, which finds the tensors among the arguments, is that of step checkpoint04.

A trace has no loops and no `if`s, only what was executed. A layer that is applied three times is
three calls.

The trap: a list of names and shapes looks like a program, and it is not one. The demo has two
functions with the same list and different values. The list does not say which result goes where.

(PyTorch: torch.jit.trace listens to calls like this. torch.compile reads the program's bytecode.)

New: TraceMode.
Try: record id(x) instead of the shape. Can you tell the two functions apart now? What if a tensor
is freed in the middle, and its id is used again?
"""

import dataclasses
import importlib
import time
from statistics import median
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed, randn
from tinytorch.utils._nested import tensors_in

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing matmul reduction sampling shape softmax".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TraceMode(FunctionMode):
    """Writes down each call of a Function: its name, and the shapes of its tensors."""

    def __init__(self):
        self.calls: list[tuple] = []

    def call(self, function: type, args: tuple) -> Any:
        shapes = [tuple(x.shape) for x in tensors_in(args)]
        self.calls.append((function.__name__, *shapes))
        return function.apply(*args)


if __name__ == "__main__":

    def microseconds(function):
        """The median time of a call."""
        times = []
        for _ in range(200):
            start = time.perf_counter_ns()
            for _ in range(20):
                function()
            times.append((time.perf_counter_ns() - start) / 20_000)
        return median(times)

    x, array = randn(4), np.ones(4, np.float32)
    eager, numpy = microseconds(lambda: x * 2.0), microseconds(lambda: array * 2.0)
    print(f"x * 2: {eager:.2f} us, of NumPy {numpy:.2f} us")  # -> x * 2: ... us, of NumPy ... us

    manual_seed(0)
    model = Sequential(Linear(8, 16), *(ReLU() for _ in range(3)), Linear(16, 3))
    with TraceMode() as mode:
        cross_entropy(model(randn(5, 8)), tensor([0, 1, 2, 1, 0]))
    for each in mode.calls:
        print(*each)
    # -> Addmm (5, 8) (16, 8) (16,)
    # -> Relu (5, 16)
    # -> Relu (5, 16)
    # -> Relu (5, 16)
    # -> Addmm (5, 16) (3, 16) (3,)
    # -> NllLoss (5, 3) (5,)

    # The tensors of a call, wherever they are.
    @dataclasses.dataclass
    class Batch:
        images: Tensor

    x = tensor([1.0, 2.0])
    print(len(list(tensors_in([x, {"a": (x, 3)}, Batch(x), "text"]))))  # -> 3

    # One list, two functions.
    def first(x):
        y = x.exp()
        return y * y

    def second(x):
        y = x.exp()
        return y * x

    lists = []
    for function in (first, second):
        with TraceMode() as mode:
            values = function(tensor([1.0, 2.0])).tolist()
        lists.append(mode.calls)
        print([round(value, 3) for value in values])
    # -> [7.389, 54.598]
    # -> [2.718, 14.778]
    print(lists[0])  # -> [('Exp', (2,)), ('Mul', (2,), (2,))]
    print(lists[0] == lists[1])  # -> True
