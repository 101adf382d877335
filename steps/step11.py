"""Step 11: Several inputs, several outputs

A function of step 10 takes one variable and makes one variable. Most arithmetic is different:
x + y has two inputs. And some functions have several outputs: Python's divmod returns a quotient
and a remainder.

So a call now takes a list of variables and returns a list of variables:

    [x0, x1, ...]  ->  forward on the arrays  ->  [y0, y1, ...]

All outputs of one call have the same creator, because one call made them. The function remembers
both lists, since backward will need them. It keeps copies: the caller has both lists too, and if it
appended to one of them later, the record would be wrong.

Lists put brackets into every function: `square` has to wrap its x in a list, and to take its y out
of one. Worse, if `forward` forgets the brackets, nothing complains: the call loops over whatever it
gets, and a loop over an array visits its rows. The demo shows three outputs where there should be
one. The next step removes the brackets and this trap.

Only forward is general so far. Backward still goes from one output to one input, which is enough
for square and exp, and it raises an error for anything else. That is better than a wrong gradient.

Changed: Function.__call__, Variable.backward, forward and backward of every function, square, exp.
New: Add.
Try: in Function.__call__ write `self.inputs = inputs`. The demo prints "3 3": the record grew too.
"""

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.number)):
        return np.array(x)
    raise TypeError(f"a Variable holds an ndarray or a number, not {type(x).__name__}")


class Variable:
    """A box around a NumPy array, with the function that made it and a place for a gradient."""

    def __init__(self, data):
        self.data = as_array(data)
        self.grad = None
        self.creator = None

    def backward(self):
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        functions = [self.creator]
        while functions:
            f = functions.pop()
            if f is None:
                continue
            if len(f.inputs) > 1 or len(f.outputs) > 1:
                name = type(f).__name__
                raise NotImplementedError(f"backward through {name}: one input, one output only")
            f.inputs[0].grad = f.backward(f.outputs[0].grad)
            functions.append(f.inputs[0].creator)


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    def __call__(self, inputs):
        ys = self.forward([x.data for x in inputs])
        outputs = [Variable(y) for y in ys]
        self.inputs = list(inputs)  # copies: the caller may change its lists later
        self.outputs = list(outputs)
        for output in outputs:
            output.creator = self
        return outputs

    def forward(self, xs):
        """Compute a list of output arrays from a list of input arrays."""
        raise NotImplementedError

    def backward(self, gy):
        """Compute the gradient of the input from the gradient of the output."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, xs):
        return [xs[0] ** 2]

    def backward(self, gy):
        return 2 * self.inputs[0].data * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, xs):
        return [np.exp(xs[0])]

    def backward(self, gy):
        return np.exp(self.inputs[0].data) * gy


class Add(Function):
    """y = x0 + x1"""

    def forward(self, xs):
        return [xs[0] + xs[1]]


def square(x):
    return Square()([x])[0]


def exp(x):
    return Exp()([x])[0]


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    a, b = Variable(2.0), Variable(3.0)
    inputs = [a, b]
    print("sum:", Add()(inputs)[0].data)  # -> sum: 5.0

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, xs):
            return [xs[0] + xs[1], xs[0] - xs[1]]

    s, d = SumAndDifference()(inputs)
    print("sum and difference:", s.data, d.data)  # -> sum and difference: 5.0 -1.0
    print("made by one function:", s.creator is d.creator)  # -> made by one function: True

    inputs.append(s)
    print("the list and the record:", len(inputs), len(s.creator.inputs))
    # -> the list and the record: 3 2
    outputs = Add()(inputs[:2])
    outputs.append(a)
    print("outputs:", len(outputs), len(outputs[0].creator.outputs))  # -> outputs: 2 1

    class Forgetful(Function):
        def forward(self, xs):
            return xs[0] + xs[1]  # no brackets

    row = Variable(np.array([10.0, 20.0, 30.0]))
    print("should be 1 output:", len(Forgetful()([row, row])))  # -> should be 1 output: 3

    x = Variable(0.5)
    square(exp(square(x))).backward()
    print("a chain still works:", x.grad)  # -> a chain still works: 3.297442541400256
    for y in (Add()([a, b])[0], s):
        try:
            y.backward()
        except NotImplementedError as error:
            print(error)
            # -> backward through Add: one input, one output only
            # -> backward through SumAndDifference: one input, one output only
