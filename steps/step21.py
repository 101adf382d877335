"""Step 21: Numbers and arrays in a formula

2.0 * x + 1.0 still fails: a float has no .data. There are four obstacles, one behind the other.

1. The other operand is not a Variable. So Function.__call__ wraps whatever it gets in one. This is
   the only place where it is needed: every function now accepts numbers and arrays.
2. The number is on the left. Python asks the float first, which does not know Variables and gives
   up. Then Python calls a second method of the right-hand side: x.__rmul__(2.0). For + and * the
   order makes no difference, so the same functions serve again.
3. An array is on the left. NumPy does not give up: it multiplies each of its elements with the
   whole of x, and returns an array of Variables. `__array_ufunc__ = None` in a class tells NumPy
   that the class has operators of its own. Then NumPy gives up too, and x.__rmul__ is called.
4. The dtype. NumPy computes 2.0 * a in float32 if a is float32: a Python number has no dtype and
   takes that of the array. But np.array(2.0) is float64, and makes the result float64. So the array
   for a Python number must get the dtype that NumPy would give it: np.result_type finds it.

Anything that is not a number, an array or a Variable is still refused, by as_array.

A limitation: NumPy stretches a single number to the shape of an array, so [1, 2, 3] + b works. But
if b is a Variable, its gradient arrives in the stretched shape: three derivatives for one number.
The right answer is their sum. A later stage corrects this, under the name of broadcasting. Until
then, combine Variables of equal shape.

(PyTorch takes numbers in the same way. A NumPy array must be made a tensor first.)

Changed: Function.__call__ wraps its inputs. New: as_variable, Variable.__array_ufunc__, __radd__,
__rmul__.
Try: remove the line `__array_ufunc__ = None`. Then array * x is an array of three Variables, and
has no backward.
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


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    x = Variable(np.array([1.0, 2.0, 3.0]))
    for y in (x * 2.0 + 1.0, 1.0 + 2.0 * x, np.array([1.0, 10.0, 100.0]) * x):
        x.cleargrad()
        y.backward()
        print(y, x.grad)
        # -> variable([3. 5. 7.]) [2. 2. 2.]
        # -> variable([3. 5. 7.]) [2. 2. 2.]
        # -> variable([  1.  20. 300.]) [  1.  10. 100.]

    print(np.float64(3.0) * x)  # -> variable([3. 6. 9.])
    print(square(3), exp(0.0))  # -> variable(9) variable(1.0)

    # NumPy keeps float32 beside a Python number, but not beside an array made of it.
    x = Variable(np.array([1.0, 2.0, 3.0], dtype=np.float32))
    print("a number 2.0:", (2.0 * x.data).dtype)  # -> a number 2.0: float32
    print("an array of 2.0:", (np.array(2.0) * x.data).dtype)  # -> an array of 2.0: float64
    y = 2.0 * x + 1
    y.backward()
    print("ours:", y.dtype, x.grad.dtype)  # -> ours: float32 float32

    try:
        x + "1"
    except TypeError as error:
        print(error)  # -> a Variable holds an ndarray or a number, not str

    b = Variable(10.0)
    (x + b).backward()
    print("b", b.shape, "its gradient", b.grad.shape)  # -> b () its gradient (3,)
