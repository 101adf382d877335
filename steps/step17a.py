"""Step 17a: Memory: breaking the reference cycle

Python frees an object as soon as nothing refers to it. That fails for references that form a
cycle, and ours do: y.creator is the function, and the function's outputs hold y. If you drop y, the
two still hold each other:

    y --creator--> f --outputs--> y

The memory stays in use until Python's garbage collector looks for such cycles. When it runs depends
on the number of objects, not on their size, and a graph holds every array of a computation. The
demo switches the collector off and builds 100 graphs: with the cycle 80 MB stay in use, without it
none.

One of the two references must become weak: a weak reference does not keep its object alive.
Backward starts at y and goes to the inputs, so these references must stay strong: y -> creator ->
inputs. The other one, from the function to its output, becomes weak. `weakref.ref(output)` makes
it, and calling it, `output()`, returns the output, or None if that has been freed.

The trap: an output may be gone. After s, d = f(...), if only s is kept, nothing refers to d any
more and it is freed. Its gradient counts as zeros, but backward cannot ask d for its shape. So the
function notes the shape and dtype of each output: a few bytes, where the array may be megabytes.

(In PyTorch the graph does not hold its output tensors either. It notes their shapes and dtypes.)

Changed: Function.__call__, Variable.backward. New: Function.output_specs.
Try: let Function.__call__ also keep a strong list, `self.held = outputs`. The line "without" then
reports 80 MB, and the difference d is still there.
"""

import heapq
import itertools
import weakref

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.number)):
        return np.array(x)
    raise TypeError(f"a Variable holds an ndarray or a number, not {type(x).__name__}")


class Variable:
    """A box around a NumPy array, with the function that made it and a place for a gradient."""

    def __init__(self, data):
        self.data = as_array(data)
        self.grad = None
        self.creator = None

    def cleargrad(self):
        """Discard the gradient, so that the next backward does not add to it."""
        self.grad = None

    def backward(self):
        """Add d(self)/dx to x.grad, for every variable x that this one was computed from."""
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        if self.creator is None:
            return
        waiting = [(-self.creator.sequence_nr, self.creator)]  # a heap: the latest call comes first
        seen = {self.creator}
        while waiting:
            _, f = heapq.heappop(waiting)
            outputs = [output() for output in f.outputs]  # None where an output has been freed
            gys = [
                np.zeros(*spec) if y is None or y.grad is None else y.grad
                for y, spec in zip(outputs, f.output_specs, strict=True)
            ]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx if x.grad is None else x.grad + gx  # not +=: gx may have other owners
                if x.creator is not None and x.creator not in seen:
                    seen.add(x.creator)
                    heapq.heappush(waiting, (-x.creator.sequence_nr, x.creator))


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        ys = self.forward(*[x.data for x in inputs])
        if not isinstance(ys, tuple):
            ys = (ys,)
        outputs = [Variable(y) for y in ys]
        self.sequence_nr = next(Function.sequence_numbers)
        self.inputs = inputs
        self.outputs = [weakref.ref(output) for output in outputs]  # strong would be a cycle
        self.output_specs = [(output.data.shape, output.data.dtype) for output in outputs]
        for output in outputs:
            output.creator = self
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, *xs):
        """Compute one output array, or a tuple of them, from the input arrays."""
        raise NotImplementedError

    def backward(self, *gys):
        """Compute a gradient for each input from one for each output: one array, or a tuple."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.inputs[0].data * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return np.exp(self.inputs[0].data) * gy


class Add(Function):
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """y = x0 x1, dy/dx0 = x1, dy/dx1 = x0"""

    def forward(self, x0, x1):
        return x0 * x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy * x1.data, gy * x0.data


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


def mul(x0, x1):
    return Mul()(x0, x1)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    import gc
    import tracemalloc

    x = Variable(3.0)
    y = square(x)
    f = y.creator
    print("while y is held:", f.outputs[0]() is y)  # -> while y is held: True
    del y
    print("afterwards:", f.outputs[0]())  # -> afterwards: None

    class Cycle(Square):
        """As step 16 was: the function holds its output, and the output holds the function."""

        def __call__(self, x):
            self.held = super().__call__(x)
            return self.held

    big = Variable(np.ones(100_000))  # 0.8 MB

    def megabytes(function):
        """MB in use after the run: what only the garbage collector could free."""
        gc.collect()
        gc.disable()
        tracemalloc.start()
        for _ in range(100):
            function()(big)  # the output is not kept
        left, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
        return round(left / 1e6)

    print(f"with the cycle: {megabytes(Cycle)} MB left")  # -> with the cycle: 80 MB left
    print(f"without: {megabytes(Square)} MB left")  # -> without: 0 MB left

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, x0, x1):
            return x0 + x1, x0 - x1

        def backward(self, gs, gd):
            return gs + gd, gs - gd

    p, q = Variable(np.ones(3)), Variable(np.ones(3))
    s = SumAndDifference()(p, q)[0]
    s.backward()
    print(s.creator.outputs[1](), p.grad, q.grad)  # -> None [1. 1. 1.] [1. 1. 1.]
