"""Step 03: Chaining functions

A single square does not need a framework. Here is a small formula:

    y = (e^(x^2))^2

It is three functions in a row. A Function takes a Variable and returns a Variable, so the result
of one can be the argument of the next:

    (x) -> [Square] -> (a) -> [Exp] -> (b) -> [Square] -> (y)

    a = A(x),  b = B(a),  y = C(b)

We only need to add Exp; the rest of the framework stays as it is. This is why step 02 put boxes
around arguments and results: any chain of functions is again something that takes a Variable and
returns a Variable, so it can be a part of a longer chain.

Every variable on the way is a box of its own: a and b can still be looked at afterwards. The next
steps need them, because a derivative depends on the values in between.

The trap is the order. Written in one line the chain is C(B(A(x))): the function that runs first is
the innermost, so the line is read from right to left. The square of exp(x) is not exp of x^2.

(PyTorch builds the same kind of graph while your lines run.)

New: Exp.
Try: x = 20. b is still a number, of 174 digits. y is inf, and NumPy warns of an overflow.
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


if __name__ == "__main__":
    A, B, C = Square(), Exp(), Square()
    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    print("a =", a.data)  # -> a = 0.25
    print("b =", b.data)  # -> b = 1.2840254166877414
    print("y =", y.data)  # -> y = 1.648721270700128

    # (e^(x^2))^2 is e^(2 x^2), and for x = 0.5 that is e^0.5.
    print("by hand:", np.exp(0.5))  # -> by hand: 1.6487212707001282

    def f(x):
        return C(B(A(x)))

    print("in one line:", f(x).data == y.data)  # -> in one line: True
    print("in a longer chain:", C(f(x)).data)  # -> in a longer chain: 2.718281828459045
    print("exp after square:", B(A(x)).data)  # -> exp after square: 1.2840254166877414
    print("square after exp:", A(B(x)).data)  # -> square after exp: 2.718281828459045
