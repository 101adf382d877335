"""Step 12: Variable-length arguments

Step 11 works, but it reads badly: `Add()([x0, x1])[0]`, and inside, `xs[0] + xs[1]`. We want to
define and to call a function like any other:

    add(x0, x1)              def forward(self, x0, x1): return x0 + x1

Python's star does both. In a definition it collects arguments: `def __call__(self, *inputs)` makes
a tuple of them, however many there are. In a call it spreads them: `self.forward(*arrays)` passes
the arrays one by one, and each gets a name.

Results are unpacked as well: one output is returned as it is, several as a list.

For this, forward must say whether its result is one array or several. The rule: several arrays are
a tuple, as in `return x0 + x1, x0 - x1`. That removes the trap of step 11: an array is not a tuple,
so an array of three numbers is one output. A list could mean either; Variable refuses it.

`*inputs` also makes a new tuple at each call, which cannot be changed. So the copy of the inputs
that step 11 made is no longer needed.

Too many or too few inputs are now an error that Python itself reports. (Its message counts self.)

(PyTorch has the same convention: a Function's forward takes any number of arguments and returns
one result or a tuple.)

Changed: Function.__call__, each forward, square, exp. New: add.
Try: in Function.__call__ delete the two lines that test for a tuple. The loop over ys then gets a
single number, and raises TypeError.
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

    def __call__(self, *inputs):
        ys = self.forward(*[x.data for x in inputs])
        if not isinstance(ys, tuple):
            ys = (ys,)
        outputs = [Variable(y) for y in ys]
        self.inputs = inputs
        self.outputs = list(outputs)
        for output in outputs:
            output.creator = self
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, *xs):
        """Compute one output array, or a tuple of them, from the input arrays."""
        raise NotImplementedError

    def backward(self, gy):
        """Compute the gradient of the input from the gradient of the output."""
        raise NotImplementedError


class Square(Function):
    """y = x^2, dy/dx = 2 x"""

    def forward(self, x):
        return x**2

    def backward(self, gy):
        return 2 * self.inputs[0].data * gy


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return np.exp(self.inputs[0].data) * gy


class Add(Function):
    """y = x0 + x1"""

    def forward(self, x0, x1):
        return x0 + x1


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    a, b = Variable(2.0), Variable(3.0)
    print("a + b =", add(a, b).data)  # -> a + b = 5.0

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, x0, x1):
            return x0 + x1, x0 - x1

    s, d = SumAndDifference()(a, b)
    print("sum and difference:", s.data, d.data)  # -> sum and difference: 5.0 -1.0

    row = Variable(np.array([10.0, 20.0, 30.0]))
    print("one output:", add(row, row).data)  # -> one output: [20. 40. 60.]

    class Undecided(Function):
        def forward(self, x0, x1):
            return [x0 + x1, x0 - x1]  # a list

    try:
        Undecided()(a, b)
    except TypeError as error:
        print(error)  # -> a Variable holds an ndarray or a number, not list
    try:
        Add()(a, b, a)
    except TypeError as error:
        print(error)  # -> Add.forward() takes 3 positional arguments but 4 were given

    x = Variable(0.5)
    square(exp(square(x))).backward()
    print("a chain still works:", x.grad)  # -> a chain still works: 3.297442541400256
