"""Step 08: A loop instead of recursion

In step 07 backward calls backward. A chain of n functions makes n + 1 calls, each of which waits
for the next. Python allows about a thousand of them, then it raises RecursionError. Real graphs are
deeper: a network that reads a long text word by word adds several functions for each word.

`sys.setrecursionlimit` would raise the limit, but no number is right for every graph.

The waiting serves no purpose: when `f.input.backward()` returns, nothing is left to do. So a list
of the functions that are still to run can replace the waiting calls:

    take a function from the end of the list
    pass the gradient from its output to its input
    append the creator of the input, and go on until the list is empty

The recursion knew the output of f: it was the variable whose backward was running. The loop only
has f, and it needs the gradient of f's output. So a function must now remember its output as well.

In a chain the list never holds more than one entry. It is a list because in stage 2 the chain
becomes a graph, where several functions wait at a time.

The trap: the output remembers its creator, and the creator now remembers its output. Python frees
an object when nothing refers to it any more, and these two refer to each other. Only the garbage
collector finds such cycles, some time later. Step 17a removes this one.

(PyTorch's engine is a loop as well, for the same reason. It is written in C++.)

Changed: Variable.backward is a loop, Function.__call__ keeps the output.
Try: delete `self.output = output`. The loop fails at f.output.
"""

import numpy as np


class Variable:
    """A box around a NumPy array, with the function that made it and a place for a gradient."""

    def __init__(self, data):
        self.data = data
        self.grad = None
        self.creator = None

    def backward(self):
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


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":

    def backward_by_recursion(y):
        """Variable.backward as step 07 has it."""
        f = y.creator
        if f is not None:
            f.input.grad = f.backward(y.grad)
            backward_by_recursion(f.input)

    class Grow(Function):
        """y = 1.00001 x: after 100,000 payments of interest, x has grown by (nearly) e."""

        def forward(self, x):
            return 1.00001 * x

        def backward(self, gy):
            return 1.00001 * gy

    def chain(n):
        """A variable x, and y after n functions."""
        x = y = Variable(np.array(1.0))
        for _ in range(n):
            y = Grow()(y)
        y.grad = np.array(1.0)
        return x, y

    x, y = chain(100_000)
    y.backward()
    print("loop, 100,000 functions:", x.grad)  # -> loop, 100,000 functions: 2.71826824
    try:
        backward_by_recursion(y)
    except RecursionError as error:
        print("recursion:", type(error).__name__)  # -> recursion: RecursionError

    print("the trap, a cycle:", y.creator.output is y)  # -> the trap, a cycle: True
