"""Step 06: Backward by hand

Step 05 multiplied factors that we had written out ourselves. Each function knows its own factor
best, so it gets a second method:

    forward     x  ->  y         the value goes to the right
    backward    gx <- gy         the gradient comes back:  gx = factor * gy

Here gy is the derivative of the last variable of the chain by this function's output, and gx the
same by its input. So one call of backward is one multiplication of the chain rule. Square returns
2 x * gy, and Exp returns e^x * gy.

The factor needs the x that arrived in the forward run. So every call now remembers its input, and
every variable has a place for its derivative, `grad`. Set y.grad to 1, since dy/dy = 1. Then each
line of the formula has its line of the way back, and the last one comes first:

    a = A(x)                x.grad = A.backward(a.grad)      ^
    b = B(a)                a.grad = B.backward(b.grad)      |
    y = C(b)                b.grad = C.backward(y.grad)      | begin here

The trap: a function object remembers one input. Call the same object twice, and the second input
takes the place of the first. Forward is still right, and the gradient is wrong, in silence. So an
object is for one call: A and C above are two objects, though they compute the same. Each of them is
one node of the graph: one square in the drawing of step 02.

Nobody stops us from calling the lines in a wrong order, either. The next step takes them out of our
hands.

(PyTorch has `.grad` on its tensors, and `forward` and `backward` on its functions. It remembers
only what is asked for: `ctx.save_for_backward`.)

Changed: Function.__call__ keeps the input. New: Variable.grad, backward of each function.
Try: compute a.grad before b.grad. What does Exp.backward say to a gradient that is not there yet?
"""

import numpy as np


class Variable:
    """A box around a NumPy array, with a place for a gradient."""

    def __init__(self, data):
        self.data = data
        self.grad = None


class Function:
    """A step of a computation: array in, array out. An object is one node: make one per call."""

    def __call__(self, input):
        output = Variable(self.forward(input.data))
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
    A = Square()
    B = Exp()
    C = Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    print("the inputs are kept:", A.input is x, B.input is a, C.input is b)
    # -> the inputs are kept: True True True
    print("no gradient yet:", x.grad)  # -> no gradient yet: None

    y.grad = np.array(1.0)
    b.grad = C.backward(y.grad)
    a.grad = B.backward(b.grad)
    x.grad = A.backward(a.grad)
    print("dy/db =", b.grad)  # -> dy/db = 2.568050833375483
    print("dy/da =", a.grad)  # -> dy/da = 3.297442541400256
    print("dy/dx =", x.grad)  # -> dy/dx = 3.297442541400256

    def f(x):
        return Square()(Exp()(Square()(x)))

    print("by trying:", numerical_diff(f, x))  # -> by trying: 3.29744263

    # (x^2)^2 = x^4 has the derivative 4 x^3. At 3 that is 108.
    first, second = Square(), Square()
    x = Variable(np.array(3.0))
    y = second(first(x))
    print("two objects:", y.data, first.backward(second.backward(1.0)))
    # -> two objects: 81.0 108.0

    same = Square()
    y = same(same(x))
    print("one object, used twice:", y.data, same.backward(same.backward(1.0)))
    # -> one object, used twice: 81.0 324.0
    print("it remembers 9, and has lost 3:", same.input.data)
    # -> it remembers 9, and has lost 3: 9.0
