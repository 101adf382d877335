"""Where the elements of views are, and that results share memory as they do in eager."""

import random

import numpy as np

import tinytorch
from tinytorch import compile
from tinytorch.compiler.graph import Node, perform
from tinytorch.compiler.layout import Layouts


def random_view(rng: random.Random, shape: tuple) -> tuple:
    """An operation that shows an array of this shape otherwise, and its argument."""
    op = rng.choice(["reshape", "transpose", "broadcast_to", "view_at"])
    if op == "reshape":
        size = int(np.prod(shape))
        rows = rng.choice([n for n in range(1, size + 1) if size % n == 0])
        return op, rng.choice([(size,), (rows, size // rows), (1, rows, size // rows)])
    if op == "transpose":
        return op, tuple(rng.sample(range(len(shape)), len(shape)))
    if op == "broadcast_to":
        return op, (*rng.choice([(), (3,)]), *(5 if n == 1 else n for n in shape))
    slices = [slice(None), slice(None, None, -1), slice(None, None, 2), slice(-1, None), 0]
    return op, (*(rng.choice(slices) for _ in shape), ...)


def test_layouts_are_those_of_the_array_library():
    rng, views, copies = random.Random(0), 0, 0
    for _ in range(500):
        shape = tuple(rng.choices([1, 2, 3, 4, 6], k=rng.randint(1, 4)))
        base = node = Node("input", (), {}, shape)
        array = memory = np.zeros(shape, np.int8)
        layouts = Layouts()
        for _ in range(rng.randint(1, 5)):
            op, how = random_view(rng, array.shape)
            array = perform(np, op, (array, how), {})
            if array.size > 10000:
                break
            node = Node(op, (node, how), {}, array.shape)
            if np.may_share_memory(array, memory):
                start = array.__array_interface__["data"][0]
                offset = start - memory.__array_interface__["data"][0]
                sizes = zip(array.shape, array.strides, strict=True)
                strides = tuple(0 if n == 1 else step for n, step in sizes)
                assert layouts[node] == (base, offset, strides)
                views += 1
            else:  # a reshape that has to copy
                array = memory = array.copy()
                base = node
                assert layouts[node].base is node
                copies += 1
    assert views > 500 and copies > 20


def test_results_share_memory_as_in_eager():
    def of_a_result(x):
        y = x * 2
        return y.T, y[0], y

    def of_an_argument(x):
        return x.T, x[0], x

    for f in (of_a_result, of_an_argument):
        for function in (f, compile(f)):
            turned, row, whole = function(tinytorch.ones(2, 3))
            turned.add_(1)
            row.add_(1)
            assert whole.tolist() == turned.T.tolist() and whole.tolist()[0] == row.tolist()
            assert (whole[0, 0] - whole[1, 0]).item() == 1
