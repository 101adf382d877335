"""Step 17b: Memory: dropping gradients that are not needed

Step 17a frees a graph when it is no longer used. A second waste is in backward: it fills the grad
of every variable on its way, and keeps all of them, but usually only those of the inputs are of
interest. In the demo they take as much memory as the values: 81 MB for a graph of 40 MB.

So once a function has run in backward, the gradients of its outputs have done their work, and
backward sets them to None. Inputs that no function made keep theirs. `backward(retain_grad=True)`
keeps all of them, to look at.

The trap is retain_grad=True with a second backward through the same graph. The gradients that were
kept are added to and passed on again: the demo gets 324 instead of 216. Without them the result of
a second backward is right.

(PyTorch does the same. There retain_grad() is a method, to be called on each tensor whose gradient
is wanted.)

Changed: Variable.backward. New: its argument retain_grad.
Try: delete the line `if y is not None:` and move the next one to the left. The demo's last part has
an output that was freed, and fails.
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
        """Add d(self)/dx to x.grad, for every variable x that this one was computed from.

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
    import tracemalloc

    def peak_megabytes(run, *args):
        tracemalloc.start()
        run(*args)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return round(peak / 1e6)

    big = Variable(np.ones(100_000))  # 0.8 MB

    def deep(retain_grad):
        y = big
        for _ in range(50):
            y = add(y, y)
        y.backward(retain_grad)

    print("gradients kept:", peak_megabytes(deep, True), "MB")  # -> gradients kept: 81 MB
    big.cleargrad()
    print("dropped:", peak_megabytes(deep, False), "MB")  # -> dropped: 42 MB

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

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, x0, x1):
            return x0 + x1, x0 - x1

        def backward(self, gs, gd):
            return gs + gd, gs - gd

    p, q = Variable(3.0), Variable(2.0)
    s = SumAndDifference()(p, q)[0]  # the second output is freed
    s.backward()
    print("one output freed:", p.grad, q.grad, s.grad)  # -> one output freed: 1.0 1.0 None
