"""Step 07: Backward by recursion

In step 06 we wrote the formula twice, the second time in reverse, and one line in the wrong place
makes the result wrong. The computer can find the way back itself, if every object remembers where
it came from.

A function remembers its input since step 06. One link is missing: a variable must remember the
function that made it, its creator. Then a path leads from the end to the beginning:

    y --creator--> C --input--> b --creator--> B --input--> a --creator--> A --input--> x

x was not made by a function, so it has no creator, and the path ends there. Going back is a
recursion: to go backward from a variable, pass its gradient to its creator, which returns the
gradient of its input. Then go backward from that input.

The links are made while the formula runs. Whatever Python executes, `if` and `for` included, the
path holds exactly the functions that ran. (This is called define-by-run, and PyTorch does the same.
It calls the creator `grad_fn`, and a variable without one a leaf.)

Two traps. The gradient of the end must be set first, y.grad = 1, or the first multiplication fails.
And the way back is a single path, because each function has one input. If one x goes into two
functions, each backward overwrites x.grad, and the first result is lost. Stage 2 lifts both
limits.

Changed: Function.__call__ sets the creator. New: Variable.creator, Variable.backward.
Try: squares(x, 1000) with x = 1.0 in place of squares(x, 3). Backward raises RecursionError.
"""

import numpy as np


class Variable:
    """A box around a NumPy array, with the function that made it and a place for a gradient."""

    def __init__(self, data):
        self.data = data
        self.grad = None
        self.creator = None

    def backward(self):
        f = self.creator
        if f is not None:
            f.input.grad = f.backward(self.grad)
            f.input.backward()


class Function:
    """A step of a computation: array in, array out. An object is one node: make one per call."""

    def __call__(self, input):
        output = Variable(self.forward(input.data))
        output.creator = self
        self.input = input
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


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    A, B, C = Square(), Exp(), Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    print(y.creator is C, C.input is b, b.creator is B)  # -> True True True
    print(B.input is a, a.creator is A, A.input is x)  # -> True True True
    print("x has no creator:", x.creator)  # -> x has no creator: None

    y.grad = np.array(1.0)
    y.backward()
    print("dy/dx =", x.grad)  # -> dy/dx = 3.297442541400256
    print("on the way:", b.grad, a.grad)  # -> on the way: 2.568050833375483 3.297442541400256

    # The path is what was executed: n is known only when the loop runs.
    def squares(x, n):
        for _ in range(n):
            x = Square()(x)
        return x

    x = Variable(np.array(1.5))
    y = squares(x, 3)
    y.grad = np.array(1.0)
    y.backward()
    print("x^8:", x.grad, "by hand:", 8 * 1.5**7)  # -> x^8: 136.6875 by hand: 136.6875

    x = Variable(np.array(3.0))
    y0, y1 = Square()(x), Exp()(x)
    try:
        y0.backward()  # without y.grad = 1
    except TypeError as error:
        print(error)  # -> unsupported operand type(s) for *: 'float' and 'NoneType'
    y0.grad = y1.grad = np.array(1.0)
    y0.backward()
    print("from y0:", x.grad)  # -> from y0: 6.0
    y1.backward()
    print("from y1, and 6.0 is lost:", x.grad)  # -> from y1, and 6.0 is lost: 20.085536923187668
