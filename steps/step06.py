"""Step 06: Backpropagation by hand

In step 05 we wrote the local derivatives into the demo. They belong to the functions, so each
function gets a second method:

    forward     x  ->  y         the value goes to the right
    backward    gx <- gy         the gradient comes back:  gx = local derivative * gy

gy is the derivative of the end of the chain with respect to this function's output, and gx the
same with respect to its input. So one call of backward is one multiplication of the chain rule:
Square returns 2 x * gy, and Exp returns e^x * gy. From here on, "the gradient of v" means: the
derivative of the final result with respect to the variable v (if v holds an array, one partial
derivative for each element). A variable keeps it in `grad`.

The local derivative needs the x that arrived in forward. So every call now remembers its input.
Set y.grad to 1, since dy/dy = 1. Then each line of the formula has a line on the way back, in
reverse order:

    a = A(x)                x.grad = A.backward(a.grad)      ^
    b = B(a)                a.grad = B.backward(b.grad)      |
    y = C(b)                b.grad = C.backward(y.grad)      | begin here

The trap: a function object remembers one input. If you call the same object twice, the second
input replaces the first. The value is still right, but the gradient is wrong, and nothing says so.
So an object serves one call: A and C above are two objects, though they compute the same. Each is
one node of the graph, one square in the drawing of step 02.

(PyTorch has `.grad` on its tensors, and `forward` and `backward` on its functions. Its functions
remember only what they ask for: `ctx.save_for_backward`.)

Changed: Function.__call__ keeps the input. New: Variable.grad, backward of each function.
Try: compute a.grad before b.grad. b.grad is still None, and Exp.backward cannot multiply by it.
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
    A, B, C = Square(), Exp(), Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    print("inputs kept:", A.input is x, C.input is b)  # -> inputs kept: True True

    y.grad = np.array(1.0)
    b.grad = C.backward(y.grad)
    a.grad = B.backward(b.grad)
    x.grad = A.backward(a.grad)
    print("dy/db =", b.grad)  # -> dy/db = 2.568050833375483
    print("dy/da =", a.grad)  # -> dy/da = 3.297442541400256
    print("dy/dx =", x.grad)  # -> dy/dx = 3.297442541400256

    print("numerical:", numerical_diff(lambda x: C(B(A(x))), x))  # -> numerical: 3.29744263

    try:
        Function().backward(1.0)
    except NotImplementedError as error:
        print("no backward:", type(error).__name__)  # -> no backward: NotImplementedError

    # (x^2)^2 = x^4 has the derivative 4 x^3. At 3 that is 108.
    first, second = Square(), Square()
    x = Variable(np.array(3.0))
    y = second(first(x))
    print("two objects:", first.backward(second.backward(1.0)))  # -> two objects: 108.0

    same = Square()
    y = same(same(x))
    print("one object, used twice:", y.data, same.backward(same.backward(1.0)))
    # -> one object, used twice: 81.0 324.0
    print("it has lost 3:", same.input.data)  # -> it has lost 3: 9.0
