"""Step 02: A function from variable to variable

A box alone computes nothing. We could take the array out, compute, and make a new box:

    y = Variable(x.data**2)

But then nothing records that y was computed from x, or by which rule. So a computation becomes an
object too: a Function. Draw variables as circles, functions as squares and arrows between them.
The drawing is called a computational graph:

    (x) ---> [ Square ] ---> (y)

Every function takes an array out of a box, computes, and puts the result into a new box. Only the
computation differs. So the rest is written once, in `Function.__call__`, and the computation in
`forward`, once for each kind of function:

    Variable  --open-->  array  --forward-->  array  --close-->  Variable

`__call__` is the method that Python runs when an object is called like a function: f(x) means
f.__call__(x). Later steps add bookkeeping to it, and every function will have it at once.

The trap: forward gets an array and returns an array. It must not open or make a Variable itself.
And you call f(x), never f.forward(x), which makes no box.

Function.forward raises an error instead of returning None. So if a class does not define forward,
its first call fails.

(PyTorch has the same pair: you write `forward`, and a call does more than forward.)

New: Function, Square.
Try: misspell `forward` as `foward` in Square. The class is accepted; the first call f(x) raises
NotImplementedError.
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


if __name__ == "__main__":
    x = Variable(np.array(10.0))
    f = Square()
    y = f(x)
    print(type(y).__name__, y.data)  # -> Variable 100.0
    print("in one go:", Square()(x).data)  # -> in one go: 100.0

    row = Variable(np.array([1.0, 2.0, 3.0]))
    print("every element:", f(row).data)  # -> every element: [1. 4. 9.]

    print("forward alone:", type(f.forward(x.data)).__name__)  # -> forward alone: float64
    try:
        f.forward(x)
    except TypeError as error:
        print(error)  # -> unsupported operand type(s) for ** or pow(): 'Variable' and 'int'

    try:
        Function()(x)
    except NotImplementedError as error:
        print(type(error).__name__)  # -> NotImplementedError
