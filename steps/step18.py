"""Step 18: no_grad: computing without a graph

Every call leaves a node: the function, which holds its inputs. Backward needs that. But often
backward is never called: a trained network is used, or a result is checked. Then the graph is a
waste of memory. In a long chain each array could be freed as soon as the next one is computed, but
the nodes hold all of them.

So there is a switch. While it is off, a call computes its outputs and nothing else: no number, no
inputs kept, no creator. An output then looks like a variable that was not computed.

    with no_grad():
        y = square(x)        # y.creator is None

`contextlib.contextmanager` turns a function into such a block: what stands before its `yield` runs
at the beginning of the block, what stands after it at the end. The switch must be reset even if the
block raises an error; that is what `finally` is for. And it is reset to its previous value, which
is not always "on", since blocks may be nested.

The trap: backward from such a y finds no graph. It computes nothing, and there is no error.

(PyTorch has the same name with the same meaning: `with torch.no_grad():`.)

Changed: Function.__call__ tests the switch. New: GradMode, no_grad.
Try: in no_grad, delete the lines `try:` and `finally:` but keep what they contain. The demo then
prints "after an error: False", and every later backward finds no graph.
"""

import contextlib
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


class GradMode:
    """Whether calls are recorded. A class attribute, so that everything shares one switch."""

    enabled = True


@contextlib.contextmanager
def no_grad():
    """Inside this block no call is recorded: outputs have no creator."""
    before = GradMode.enabled
    GradMode.enabled = False
    try:
        yield
    finally:
        GradMode.enabled = before


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
        if GradMode.enabled:
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

    x = Variable(np.array(3.0))
    y = square(x)
    print("recorded:", type(y.creator).__name__)  # -> recorded: Square
    with no_grad():
        y = square(x)
    print("not recorded:", y.data, y.creator)  # -> not recorded: 9.0 None
    y.backward()
    print("no graph, no error:", x.grad)  # -> no graph, no error: None

    try:
        with no_grad():
            with no_grad():
                pass
            print("after an inner block:", GradMode.enabled)  # -> after an inner block: False
            raise ValueError("something goes wrong in the block")
    except ValueError:
        print("after an error:", GradMode.enabled)  # -> after an error: True

    def chain(x, n):
        for _ in range(n):
            x = add(x, x)
        return x

    def peak_megabytes(run):
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / 1e6

    big = Variable(np.ones(100_000))  # 0.8 MB
    with_record = peak_megabytes(lambda: chain(big, 50))
    with no_grad():
        without = peak_megabytes(lambda: chain(big, 50))
    print(f"{with_record:.0f} MB with its record, {without:.1f} MB without")
    # -> 40 MB with its record, 1.6 MB without
