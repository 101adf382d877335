"""Step 22: The operators -, / and **

Half of the operators are missing: a - b has to be written a + -1.0 * b, and there is no division.
Four functions complete the set:

    y = -x         dy/dx  = -1
    y = x0 - x1    dy/dx0 = 1         dy/dx1 = -1
    y = x0 / x1    dy/dx0 = 1 / x1    dy/dx1 = -x0 / x1^2
    y = x^n        dy/dx  = n x^(n-1)

The first trap is the order. 5 - x calls x.__rsub__(5): first x, then 5. For + and * this made no
difference. Here the two must be swapped back, or 5 - x becomes x - 5.

In x^n only x is a Variable; n is a number. It is not an input of the function but a part of it,
like the 2 in Square: the object Pow(3) is the cubing function. So n has no gradient, and x**y
for two Variables is refused, because only half of its gradients would be right.

The second trap is in the formula. x^0 is 1 everywhere, so its derivative is 0 everywhere. But at
x = 0 the formula says 0 * 0^-1: zero times infinity. So n = 0 is treated separately. We need it:
the third derivative of x^2 (stage 4) meets x^0 on the way.

Python's precedence holds here too: -x**2 is -(x^2). Our pow hides Python's own in this file.

(PyTorch's operators are the same. It also accepts a tensor as the exponent.)

New: Neg, Sub, Div, Pow, neg, sub, div, pow and their operators.
Try: write `Variable.__rsub__ = sub`. The line "5 - x" shows -3 and a gradient of 1.
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

    # Make NumPy's operators defer to ours, so that `array + variable` calls __radd__.
    __array_ufunc__ = None

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


def as_variable(x, dtypes):
    """x itself if it is a Variable, else a new Variable around it: a constant of the formula.

    A Python number has no dtype. It gets the one that NumPy gives it beside arrays of `dtypes`.
    """
    if isinstance(x, (int, float)):
        x = np.array(x, np.result_type(x, *dtypes))
    return x if isinstance(x, Variable) else Variable(x)


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        dtypes = [x.dtype for x in inputs if hasattr(x, "dtype")]  # Python numbers have none
        inputs = [as_variable(x, dtypes) for x in inputs]
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


class Neg(Function):
    """y = -x, dy/dx = -1"""

    def forward(self, x):
        return -x

    def backward(self, gy):
        return -gy


class Sub(Function):
    """y = x0 - x1, dy/dx0 = 1, dy/dx1 = -1"""

    def forward(self, x0, x1):
        return x0 - x1

    def backward(self, gy):
        return gy, -gy


class Div(Function):
    """y = x0 / x1, dy/dx0 = 1 / x1, dy/dx1 = -x0 / x1^2"""

    def forward(self, x0, x1):
        return x0 / x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy / x1.data, -gy * x0.data / x1.data**2


class Pow(Function):
    """y = x^n with a number n, dy/dx = n x^(n-1)"""

    def __init__(self, n):
        self.n = n

    def forward(self, x):
        return x**self.n

    def backward(self, gy):
        if self.n == 0:
            return 0 * gy  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return self.n * self.inputs[0].data ** (self.n - 1) * gy


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


Variable.__add__ = add
Variable.__radd__ = add


def mul(x0, x1):
    return Mul()(x0, x1)


Variable.__mul__ = mul
Variable.__rmul__ = mul


def neg(x):
    return Neg()(x)


Variable.__neg__ = neg


def sub(x0, x1):
    return Sub()(x0, x1)


Variable.__sub__ = sub
Variable.__rsub__ = lambda self, other: sub(other, self)


def div(x0, x1):
    return Div()(x0, x1)


Variable.__truediv__ = div
Variable.__rtruediv__ = lambda self, other: div(other, self)


def pow(x, n):
    return Pow(n)(x)


Variable.__pow__ = pow


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    formulas = {
        "-x": lambda x: -x,
        "x - 5": lambda x: x - 5,
        "5 - x": lambda x: 5 - x,
        "4 / x": lambda x: 4 / x,
        "x / 4": lambda x: x / 4,
        "x**3": lambda x: x**3,
    }
    x = Variable(0.5)
    print("at x = 0.5: value, derivative by backward, by numerical_diff")
    for text, f in formulas.items():
        x.cleargrad()
        y = f(x)
        y.backward()
        print(f"{text:5} {y.data:8.4f} {x.grad:8.4f} {numerical_diff(f, x):8.4f}")
        # -> -x     -0.5000  -1.0000  -1.0000
        # -> x - 5  -4.5000   1.0000   1.0000
        # -> 5 - x   4.5000  -1.0000  -1.0000
        # -> 4 / x   8.0000 -16.0000 -16.0000
        # -> x / 4   0.1250   0.2500   0.2500
        # -> x**3    0.1250   0.7500   0.7500

    print("-x**2 =", -x**2, "and (-x)**2 =", (-x) ** 2)  # fmt: skip
    # -> -x**2 = variable(-0.25) and (-x)**2 = variable(0.25)

    x = Variable(0.0)
    (x**0).backward()
    print("derivative of x^0 at 0:", x.grad)  # -> derivative of x^0 at 0: 0.0

    try:
        x**x
    except TypeError as error:
        print("refused:", error)
    # -> refused: unsupported operand type(s) for ** or pow(): 'numpy.ndarray' and 'Variable'
