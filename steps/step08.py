"""Step 08: A loop instead of recursion

Step 07 calls backward inside backward. A chain of n functions makes n + 1 calls, each one waiting
for the next. Python allows about a thousand waiting calls, then it raises RecursionError. A
recurrent network over a long text is deeper than that.

The waiting serves no purpose. When `f.input.backward()` returns, nothing is left to do. So a list
of the functions that are still to be done can take the place of the waiting calls:

    take a function from the end of the list
    pass the gradient from its output to its input
    put the creator of the input on the list, and go on until the list is empty

The list lies in ordinary memory. A chain of 100,000 functions is no problem. The loop is also
faster than the calls; the demo measures by how much.

Recursion knew the output of f: it was the variable whose backward was running. The loop knows f and
nothing else. So a function must now remember its output, too.

In a straight chain the list never holds more than one entry, and a plain variable would do. It is a
list because the chain will become a graph, with several functions waiting at a time. The walk
itself is still for chains only: a function has one input, and each visit overwrites x.grad. In
stage 2 only the inside of the loop changes.

The trap: output remembers its creator, and the creator now remembers its output. They hold each
other. Python cannot free such a pair by counting references; its garbage collector has to find it
later. Step 17 comes back to this.

(PyTorch's engine is a loop as well, for the same reason. It is written in C++.)

Changed: Variable.backward is a loop, Function.__call__ keeps the output.
Try: delete `self.output = output`. What does the loop ask for, and whom?
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
    import gc
    import time
    import weakref

    def backward_by_recursion(y):
        """Variable.backward as step 07 has it."""
        f = y.creator
        if f is not None:
            f.input.grad = f.backward(y.grad)
            backward_by_recursion(f.input)

    class Grow(Function):
        """y = (1 + 1/n) x, dy/dx = 1 + 1/n: one of n payments of interest"""

        def __init__(self, n):
            self.factor = 1 + 1 / n

        def forward(self, x):
            return self.factor * x

        def backward(self, gy):
            return self.factor * gy

    def chain(n):
        """A variable x, and y after n functions. dy/dx is (1 + 1/n)^n, which tends to e."""
        x = y = Variable(np.array(1.0))
        for _ in range(n):
            y = Grow(n)(y)
        y.grad = np.array(1.0)
        return x, y

    x = Variable(np.array(0.5))
    y = Square()(Exp()(Square()(x)))
    y.grad = np.array(1.0)
    y.backward()
    print("the chain of step 07:", x.grad)  # -> the chain of step 07: 3.297442541400256
    C = y.creator
    b = C.input
    B = b.creator
    print("C.output is y, B.output is b:", C.output is y, B.output is b)
    # -> C.output is y, B.output is b: True True

    x, y = chain(500)
    backward_by_recursion(y)
    by_recursion = x.grad
    y.backward()
    print("500 functions, the same:", x.grad == by_recursion, x.grad)
    # -> 500 functions, the same: True 2.71556852

    x, y = chain(10_000)
    try:
        backward_by_recursion(y)
    except RecursionError as error:
        print("recursion:", type(error).__name__)  # -> recursion: RecursionError
    print("it never reached x:", x.grad)  # -> it never reached x: None
    y.backward()
    print("loop, 10,000 functions:", x.grad)  # -> loop, 10,000 functions: 2.71814593
    x, y = chain(100_000)
    y.backward()
    print("loop, 100,000 functions:", x.grad)  # -> loop, 100,000 functions: 2.71826824
    print("e:", np.e)  # -> e: 2.718281828459045

    def seconds(function, y):
        """The best of 20 runs."""
        times = []
        for _ in range(20):
            began = time.perf_counter()
            function(y)
            times.append(time.perf_counter() - began)
        return min(times)

    x, y = chain(500)
    ratio = seconds(Variable.backward, y) / seconds(backward_by_recursion, y)
    print(f"time of the loop: {ratio:.2f} of the time of recursion")  # -> ...

    # Output and creator hold each other: nothing goes until the garbage collector comes.
    gc.disable()
    y = Square()(Variable(np.array(3.0)))
    watch = weakref.ref(y)
    del y
    print("deleted, and still there:", watch() is not None)  # -> deleted, and still there: True
    gc.collect()
    print("after the collector:", watch())  # -> after the collector: None
    gc.enable()
