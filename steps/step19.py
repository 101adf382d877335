"""Step 19: Shape, dtype, length and print

print(x) shows a class name and a memory address. x.shape does not exist; you have to write
x.data.shape. Stage 3 makes Variables behave like the arrays they hold, so that formulas can be
written as usual. It begins with what an array can be asked for:

    x.shape    x.ndim    x.size    x.dtype    len(x)    print(x)

The first four are properties: methods that run when the attribute is read, without brackets. They
look into x.data each time and store nothing. A stored copy of the shape would be wrong as soon as
another array is put into the box.

print calls __repr__. Ours shows the kind of object and its contents: variable(3.0). The rows of a
matrix should be aligned, so every line after the first is indented by the width of "variable(".

A Variable can also have a name. It has no effect on computations; step 23a prints it in graphs,
where many variables look alike.

A single number has no length. NumPy raises TypeError for it, and so do we, because we only ask the
array.

(In PyTorch shape, ndim and dtype mean the same. size is a method there; our size is x.numel().)

Changed: Variable.__init__ takes a name. New: Variable.shape, ndim, size, dtype, __len__, __repr__.
Try: bool(Variable(0.0)). Python finds no __bool__, calls __len__ instead, and gets a TypeError.
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

    def __init__(self, data, name=None):
        self.data = as_array(data)
        self.name = name
        self.grad = None
        self.creator = None

    @property
    def shape(self):
        return self.data.shape

    @property
    def ndim(self):
        return self.data.ndim

    @property
    def size(self):
        return self.data.size

    @property
    def dtype(self):
        return self.data.dtype

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        indent = " " * len("variable(")  # aligns the rows of a matrix
        return "variable(" + str(self.data).replace("\n", "\n" + indent) + ")"

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
    x = Variable(3.0)
    print(x)  # -> variable(3.0)

    m = Variable(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), name="m")
    print(m)  # -> variable([[1. 2. 3.]
    # ->           [4. 5. 6.]])
    print(m.shape, m.ndim, m.size, m.dtype, len(m), m.name)  # -> (2, 3) 2 6 float64 2 m

    m.data = np.zeros((5, 2))
    print("another array, another shape:", m.shape)  # -> another array, another shape: (5, 2)

    try:
        len(x)
    except TypeError as error:
        print("no length:", error)  # -> no length: len() of unsized object
