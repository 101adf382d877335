"""Step 17: Memory

Python frees an object the moment the last reference to it goes. That needs references that run one
way, and ours run in a circle: y.creator is the function, and the function's outputs hold y. Drop y,
and the two hold each other. Nobody can reach them, and nobody frees them, until the garbage
collector comes round; it comes when it likes, and it counts objects, not megabytes.

A graph holds every array of a computation, so this is no small leak. The demo switches the
collector off and builds 100 graphs: with the circle 80 MB stay behind, without it nothing.

One of the two references has to be weak, one that does not keep its object alive. Backward starts
at y and goes to the inputs, so what it needs must be strong: y -> creator -> inputs. The way back,
function -> output, is the weak one. `weakref.ref(output)` makes it. To read it, call it: `output()`
is the output, or None if that is gone.

Trap: an output may be gone. s, d = f(...) and only s is kept: d was nobody's, so it was freed, and
backward cannot ask d for its shape to make zeros. The function notes shape and dtype of each
output. That is a few bytes, where the array may be megabytes.

And there is a second waste: gradients. Backward fills the grad of each variable on its way, and
people look at those of the inputs. So a function that has run takes its outputs' gradients away.
`backward(retain_grad=True)` leaves them. Then mind a second backward through the same graph: what
is left is added to and passed on again, and the demo gets 324 where 216 is right.

(PyTorch does both. There retain_grad() is a method of the one tensor whose gradient is wanted, and
graph and tensor do not hold each other either.)

Changed: Function.__call__, Variable.backward. New: the argument retain_grad.
Try: let Function.__call__ also keep a strong list, `self.held = outputs`, and run the demo.
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

    def backward(self, retain_grad=False):
        """Add the derivative of this variable by x to x.grad, for every x that it depends on.

        Variables that a function made lose their gradient again, unless retain_grad is true.
        """
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
            if not retain_grad:
                for y in outputs:
                    if y is not None:
                        y.grad = None


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

    class Circle(Square):
        """As step 16 was: the function holds its output, and the output holds the function."""

        def __call__(self, x):
            self.held = super().__call__(x)
            return self.held

    def megabytes(run, *args):
        """MB at the most, MB left behind, and MB left when the collector has been here."""
        gc.collect()
        gc.disable()
        tracemalloc.start()
        run(*args)
        left, peak = tracemalloc.get_traced_memory()
        gc.enable()
        gc.collect()
        collected, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return [round(size / 1e6) for size in (peak, left, collected)]

    big = Variable(np.ones(100_000))  # 0.8 MB

    def build(function):
        for _ in range(100):
            function()(big)  # nobody keeps the output

    peak, left, collected = megabytes(build, Circle)
    print(f"with the circle: {left} MB left, {collected} MB after the collector")
    # -> with the circle: 80 MB left, 0 MB after the collector
    peak, left, collected = megabytes(build, Square)
    print(f"without: {left} MB left")  # -> without: 0 MB left

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, x0, x1):
            return x0 + x1, x0 - x1

        def backward(self, gs, gd):
            return gs + gd, gs - gd

    p, q = Variable(np.ones(3)), Variable(np.ones(3))
    s = SumAndDifference()(p, q)[0]
    print("the difference is", s.creator.outputs[1]())  # -> the difference is None
    s.backward()
    print("and counts as zeros:", p.grad, q.grad)
    # -> and counts as zeros: [1. 1. 1.] [1. 1. 1.]

    for retain_grad in (False, True):
        x = Variable(3.0)
        a = square(x)
        y = square(a)  # x^4, with derivative 4 x^3 = 108
        y.backward(retain_grad)
        print("retain_grad", retain_grad, x.grad, a.grad, y.grad)
        # -> retain_grad False 108.0 None None
        # -> retain_grad True 108.0 18.0 1.0
        y.backward(retain_grad)
        print("twice, so 216:", x.grad)
        # -> twice, so 216: 216.0
        # -> twice, so 216: 324.0

    def deep(retain_grad):
        y = big
        for _ in range(50):
            y = add(y, y)
        y.backward(retain_grad)

    peak, left, collected = megabytes(deep, True)
    print(f"a graph of 40 MB, gradients kept: {peak} MB at the most")
    # -> a graph of 40 MB, gradients kept: 81 MB at the most
    big.cleargrad()
    peak, left, collected = megabytes(deep, False)
    print(f"a graph of 40 MB, gradients dropped: {peak} MB at the most")
    # -> a graph of 40 MB, gradients dropped: 42 MB at the most
