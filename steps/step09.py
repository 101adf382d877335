"""Step 09: Easier to use: square(x), a first gradient, type checks

Three things make the engine awkward to use.

First, `Square()(x)` is an odd way to write a square. It also invites the trap of step 06: if one
Square object is used twice, it forgets its first input. Its input is then its own output, so the
way back is a circle, and the loop of step 08 never ends. A plain Python function solves both.
`square(x)` makes a new object at every call:

    y = square(exp(square(x)))

Second, we have to set y.grad = 1 before each backward. Now backward does it, with
`np.ones_like(y.data)`: a one for each element, in the shape and dtype of y. (A bare 1.0 in an array
would turn float32 gradients into float64.) Why ones? Backward computes the derivative of a single
number. If y is an array, a gradient of ones makes that number the sum of the elements of y:

    L = y_1 + ... + y_n        dL/dy_i = 1        x.grad is the derivative of the sum

Where each y_i depends on its own x_i only, as in square, that is the derivative of each element.
To begin with other numbers, set y.grad before the call.

Third, Variable accepts anything, a list or a string too, and the error appears later in some
forward, far from the mistake. `as_array` now refuses a wrong type at once and names it.

The trap is to refuse too much. A Python number is fine; it becomes an array. And NumPy returns a
bare np.float64, not an array, for the square of an array without dimensions. A Variable that
accepted only arrays would refuse the output of the first square.

(PyTorch: `torch.square` calls a Function, and backward of a single number starts from 1.)

Changed: Variable.__init__ checks, Variable.backward starts from ones. New: as_array, square, exp.
Try: delete the two lines for numbers in as_array. square(Variable(np.array(0.5))) raises TypeError.
"""

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

    def backward(self):
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        functions = [self.creator]
        while functions:
            f = functions.pop()
            if f is None:
                continue
            f.input.grad = f.backward(f.output.grad)
            functions.append(f.input.creator)


class Function:
    """A step of a computation: array in, array out. An object is one node: make one per call."""

    def __call__(self, input):
        output = Variable(self.forward(input.data))
        output.creator = self
        self.input = input
        self.output = output
        return output

    def forward(self, x):
        """Compute the output array from the input array."""
        raise NotImplementedError

    def backward(self, gy):
        """Compute the gradient of the input from the gradient of the output."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.input.data * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return np.exp(self.input.data) * gy


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    x = Variable(np.array(0.5))
    y = square(exp(square(x)))
    y.backward()

    print("y =", y.data, "dy/dx =", x.grad)  # -> y = 1.648721270700128 dy/dx = 3.297442541400256

    # The trap of step 06: one object, used twice. A function makes two objects.
    x = Variable(np.array(3.0))
    same = Square()
    y = same(same(x))
    print("a circle:", y.creator.input.creator is y.creator)  # -> a circle: True
    y = square(square(x))
    y.backward()
    print("d(x^4)/dx at 3 =", x.grad)  # -> d(x^4)/dx at 3 = 108.0

    row = Variable(np.array([1.0, 2.0, 3.0], dtype=np.float32))
    y = square(row)
    y.backward()
    print("ones:", y.grad, "gradients:", row.grad)  # -> ones: [1. 1. 1.] gradients: [2. 4. 6.]
    from_number = y.creator.backward(np.array(1.0))
    print(row.grad.dtype, "or from 1.0:", from_number.dtype)  # -> float32 or from 1.0: float64

    x = Variable(np.array(3.0))
    y = square(x)
    y.grad = np.array(10.0)
    y.backward()
    print("started from 10:", x.grad)  # -> started from 10: 60.0

    for wrong in ([1.0, 2.0], "1.0"):
        try:
            Variable(wrong)
        except TypeError as error:
            print(error)
            # -> a Variable holds an ndarray or a number, not list
            # -> a Variable holds an ndarray or a number, not str

    x = Variable(0.5)
    print("a number becomes", repr(x.data))  # -> a number becomes array(0.5)
    print("NumPy makes a", type(np.array(0.5) ** 2).__name__)  # -> NumPy makes a float64
    print("in the box it is an", type(square(x).data).__name__)  # -> in the box it is an ndarray
