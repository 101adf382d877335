"""Step 03: One function after the other

One square is no formula worth a framework. This is a small one:

    y = (e^(x^2))^2

It is three functions in a row. Since a Function takes a Variable and returns a Variable, what one
returns is exactly what the next one takes:

    (x) -> [Square] -> (a) -> [Exp] -> (b) -> [Square] -> (y)

    a = A(x),  b = B(a),  y = C(b)

No new machinery is needed, only Exp. That is the reason for the boxes of step 02: parts which fit
together. Any chain of functions is again something that takes a Variable and returns a Variable.
So it can be a part of the next chain.

Each variable on the way is a box of its own and stays: a and b can be looked at afterwards. The
next steps need that, because a derivative depends on the values in between.

The trap is the order. In one line the chain is written C(B(A(x))): what runs first stands
innermost, so one reads it from right to left. Square after exp is another formula than exp after
square.

(PyTorch builds the same kind of graph as it runs your lines. A long formula is a long graph.)

New: Exp.
Try: x = 20. b is still a number, with 174 digits. What is y, and what does NumPy warn of?
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
    A = Square()
    B = Exp()
    C = Square()

    x = Variable(np.array(0.5))
    a = A(x)
    b = B(a)
    y = C(b)
    print("a =", a.data)  # -> a = 0.25
    print("b =", b.data)  # -> b = 1.2840254166877414
    print("y =", y.data)  # -> y = 1.648721270700128

    # (e^(x^2))^2 is e^(2 x^2), and for x = 0.5 that is e^0.5.
    print("by pencil:", np.exp(0.5))  # -> by pencil: 1.6487212707001282

    def f(x):
        return C(B(A(x)))

    print("in one line:", f(x).data == y.data)  # -> in one line: True
    print("a part of a longer chain:", C(f(x)).data)
    # -> a part of a longer chain: 2.718281828459045
    print("exp after square:", B(A(x)).data)  # -> exp after square: 1.2840254166877414
    print("square after exp:", A(B(x)).data)  # -> square after exp: 2.718281828459045
