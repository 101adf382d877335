"""Step 05: The chain rule, in numbers

Step 04 pays 2 n runs for n slopes, and gets them inexact. There is a rule that is exact, and its
price does not grow with n. This step adds no framework code. It looks at the rule with numbers,
until nothing about it is a surprise.

Every function has a factor. If x moves by a little, x^2 moves by 2 x times as much: at 0.5 the
factor is 1, at 3 it is 6. The factor is the derivative of that one function at that one point, and
for simple functions everybody knows it: 2 x for x^2, e^x for e^x. A function that does nothing,
y = x, has the factor 1.

In a chain the factors are multiplied. With a = A(x), b = B(a), y = C(b), as in step 03:

    dy/dx = dy/db * db/da * da/dx

With several paths from x to y, multiply along each path, and add the products:

    y = F2(F1(x)) + F3(x):      dy/dx = F2' * F1' + F3'

Multiply along, add across: these two carry the whole project.

The factor must be taken at the value that really arrived there: 2 b for the last square, not 2 x.
So the forward run comes first and its values are kept. This is the trap.

A product may be computed from either end. From the end of the formula to its beginning it is
called backpropagation. Why backward? When the values are arrays, the factors are matrices; y is
one number, so the factor at that end is a single row. A row times a matrix is a row: cheap all the
way. Starting at x multiplies whole matrices. Networks have one loss and millions of inputs.

(PyTorch goes backward, too: reverse mode. The other way is forward mode, `torch.func.jvp`.)

Changed: nothing in the framework. New: a demo that computes with factors.
Try: make F3 an Exp, and leave the factors as they are. Which line tells, and what mends it?
"""

import numpy as np


class Variable:
    """A box around a NumPy array."""

    def __init__(self, data):
        self.data = data


class Function:
    """A step of a computation: array in, array out."""

    def __call__(self, input):
        output = Variable(self.forward(input.data))
        return output

    def forward(self, x):
        """Compute the output array from the input array."""
        raise NotImplementedError


class Square(Function):
    """y = x^2"""

    def forward(self, x):
        return x**2


class Exp(Function):
    """y = e^x"""

    def forward(self, x):
        return np.exp(x)


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

    da_dx = 2 * x.data
    db_da = np.exp(a.data)
    dy_db = 2 * b.data
    print("factor of A:", da_dx)  # -> factor of A: 1.0
    print("factor of B:", db_da)  # -> factor of B: 1.2840254166877414
    print("factor of C:", dy_db)  # -> factor of C: 2.568050833375483

    # Each factor by itself: move the input of that one function a little, and see.
    print("moved a little:", numerical_diff(A, x))  # -> moved a little: 1.00000000
    print("moved a little:", numerical_diff(B, a))  # -> moved a little: 1.28402542
    print("moved a little:", numerical_diff(C, b))  # -> moved a little: 2.56805083

    print("product  ", dy_db * db_da * da_dx)  # -> product   3.297442541400256
    print("numerical", numerical_diff(lambda x: C(B(A(x))), x))  # -> numerical 3.29744263
    print("y = x has", numerical_diff(lambda x: x, x))  # -> y = x has 1.00000000
    wrong = 2 * x.data * np.exp(x.data) * 2 * x.data
    print("all at x ", wrong)  # -> all at x  1.6487212707001282

    # From the end to the beginning: the derivative of y by each variable on the way.
    dy_dy = 1.0
    dy_da = dy_dy * dy_db * db_da
    print("dy/dy, dy/db, dy/da, dy/dx:", dy_dy, dy_db, dy_da, dy_da * da_dx)
    # -> dy/dy, dy/db, dy/da, dy/dx: 1.0 2.568050833375483 3.297442541400256 3.297442541400256

    # Two paths from x to y = e^(x^2) + x^2. At 1.5 the factors are 3, e^2.25 and 3.
    F1, F2, F3 = Square(), Exp(), Square()

    def two_paths(x):
        return Variable(F2(F1(x)).data + F3(x).data)

    x = Variable(np.array(1.5))
    first_path = np.exp(F1(x).data) * (2 * x.data)
    second_path = 2 * x.data
    print("first path  ", first_path)  # -> first path   28.46320750907558
    print("second path ", second_path)  # -> second path  3.0
    print("sum         ", first_path + second_path)  # -> sum          31.46320750907558
    print("numerical   ", numerical_diff(two_paths, x))  # -> numerical    31.463208

    # One y from 100 inputs, by two functions with 100 x 100 factors between them.
    rng = np.random.default_rng(0)
    last, middle, first = rng.random((1, 100)), rng.random((100, 100)), rng.random((100, 100))
    backward = (last @ middle) @ first
    forward = last @ (middle @ first)
    print("same product:", np.allclose(backward, forward))  # -> same product: True

    def multiplications(p, q):
        """How many it takes for the matrix product p @ q."""
        return p.shape[0] * p.shape[1] * q.shape[1]

    print("from the end  ", multiplications(last, middle) + multiplications(last @ middle, first))
    # -> from the end   20000
    print("from the start", multiplications(middle, first) + multiplications(last, middle @ first))
    # -> from the start 1010000
