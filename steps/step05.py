"""Step 05: The chain rule in numbers

Step 04 needs 2 n runs for n derivatives, and they are inexact. The chain rule is exact, and its
cost does not grow with n. This step adds no framework code; its demo tries the rule with numbers.

Each function in a chain has a local derivative: the derivative of its own output with respect to
its own input, at the value that arrived there. For x^2 it is 2 x: 1 at x = 0.5, and 6 at x = 3. For
e^x it is e^x. If the input changes by a little, the output changes by the local derivative times as
much. So along a chain the local derivatives are factors of a product.
With a = A(x), b = B(a), y = C(b), as in step 03:

    dy/dx = dy/db * db/da * da/dx

Where several paths lead from x to y, multiply along each path and add the products:

    y = F2(F1(x)) + F3(x):      dy/dx = F2' * F1' + F3'

The trap: a local derivative must be taken at the value that arrived at this function: 2 b for the
last square, not 2 x. So the formula is computed first, and its values are kept.

The product may be computed from either end. Computed from the end of the formula to its beginning,
it is called backpropagation. Why backward? For arrays the local derivatives are matrices: one
partial derivative for each pair of an output and an input. The result y is one number, so the last
matrix is a single row, and a row times a matrix is a row again: cheap all the way. From the other
end, whole matrices are multiplied. In training, the result is one number, the loss: how wrong the
network is. The inputs are millions of weights.

(PyTorch goes backward: "reverse mode". The other way is "forward mode", `torch.func.jvp`.)

Changed: nothing in the framework. New: a demo that multiplies local derivatives.
Try: make F3 an Exp. The sum no longer equals the numerical value, until second_path is exp(x) too.
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
    A, B, C = Square(), Exp(), Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)

    da_dx = 2 * x.data
    db_da = np.exp(a.data)
    dy_db = 2 * b.data
    # Each local derivative by its rule, and numerically: change the input of that one function.
    print("A:", da_dx, numerical_diff(A, x))  # -> A: 1.0 1.00000000
    print("B:", db_da, numerical_diff(B, a))  # -> B: 1.2840254166877414 1.28402542
    print("C:", dy_db, numerical_diff(C, b))  # -> C: 2.568050833375483 2.56805083

    print("product  ", dy_db * db_da * da_dx)  # -> product   3.297442541400256
    print("numerical", numerical_diff(lambda x: C(B(A(x))), x))  # -> numerical 3.29744263
    wrong = 2 * x.data * np.exp(x.data) * 2 * x.data
    print("wrong, all three at x:", wrong)  # -> wrong, all three at x: 1.6487212707001282

    # Two paths from x to y = e^(x^2) + x^2. At 1.5 the local derivatives are 3, e^2.25, 3.
    F1, F2, F3 = Square(), Exp(), Square()

    def two_paths(x):
        return Variable(F2(F1(x)).data + F3(x).data)

    x = Variable(np.array(1.5))
    first_path, second_path = np.exp(F1(x).data) * (2 * x.data), 2 * x.data
    print("two paths:", first_path, second_path)  # -> two paths: 28.46320750907558 3.0
    print("sum      ", first_path + second_path)  # -> sum       31.46320750907558
    print("numerical", numerical_diff(two_paths, x))  # -> numerical 31.463208

    # One y from 100 inputs: local derivatives of 1 x 100, 100 x 100 and 100 x 100. Count the
    # multiplications: a product of a x b with b x c takes a b c of them.
    print("from the end  ", 1 * 100 * 100 + 1 * 100 * 100)  # -> from the end   20000
    print("from the start", 100 * 100 * 100 + 1 * 100 * 100)  # -> from the start 1010000
