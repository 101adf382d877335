"""Step 14: A variable used twice

The derivative of x + x is 2, and step 13 says 1. Add does its part and returns a gradient for each
of its inputs. But both inputs are the same x, so `x.grad = gx` runs twice, and the second gradient
overwrites the first.

When several paths lead from x to y, a change of x acts along all of them, and the effects add up
(the second rule of step 05):

    y = f(u, v) with u = g(x), v = h(x):     dy/dx = dy/du * du/dx + dy/dv * dv/dx

So an arriving gradient is added to the one that is there.

The trap is to write `x.grad += gx`. For an array that means "change this array", and the array may
be used elsewhere too. Add returns the array that it was given for both of its inputs: after
backward from y = a + b, y.grad, a.grad and b.grad are one array. `x.grad = x.grad + gx` makes a new
one. The rule: never write into a gradient that another variable may hold.

Adding has a consequence. If x is used in a second computation, its new gradient is added to the old
one: 2, then 4, then 6. Sometimes this is wanted, to add up the gradients of several results.
Otherwise call `x.cleargrad()` first.

(PyTorch accumulates gradients too. There the call is `optimizer.zero_grad()`; an optimizer is an
object that changes the weights of a network. Forgetting the call is a very common mistake.)

Changed: Variable.backward adds. New: Variable.cleargrad.
Try: let backward do `x.grad += gx` where x.grad is not None. "dy/dy is still" then prints 2.0, and
the derivative of x + x + x becomes 4.0.
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

    def cleargrad(self):
        """Discard the gradient, so that the next backward does not add to it."""
        self.grad = None

    def backward(self):
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        functions = [self.creator]
        while functions:
            f = functions.pop()
            if f is None:
                continue
            gys = [np.zeros_like(y.data) if y.grad is None else y.grad for y in f.outputs]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx if x.grad is None else x.grad + gx  # not +=: gx may have other owners
                functions.append(x.creator)


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

    def backward(self, *gys):
        """Compute a gradient for each input from one for each output: one array, or a tuple."""
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
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """y = x0 x1, dy/dx0 = x1, dy/dx1 = x0"""

    def forward(self, x0, x1):
        return x0 * x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy * x1.data, gy * x0.data


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


def mul(x0, x1):
    return Mul()(x0, x1)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    x = Variable(3.0)
    y = add(x, x)
    y.backward()
    print("d(x + x)/dx =", x.grad)  # -> d(x + x)/dx = 2.0
    print("dy/dy is still", y.grad)  # -> dy/dy is still 1.0

    x.cleargrad()
    add(add(x, x), x).backward()
    print("d(x + x + x)/dx =", x.grad)  # -> d(x + x + x)/dx = 3.0

    x.cleargrad()
    add(square(x), exp(x)).backward()
    print("d(x^2 + e^x)/dx =", x.grad)  # -> d(x^2 + e^x)/dx = 26.085536923187668

    a, b = Variable(1.0), Variable(1.0)
    y = add(a, b)
    y.backward()
    print("one array:", a.grad is b.grad, a.grad is y.grad)  # -> one array: True True

    x = Variable(3.0)
    for _ in range(3):
        add(x, x).backward()
        print("not cleared:", x.grad)
        # -> not cleared: 2.0
        # -> not cleared: 4.0
        # -> not cleared: 6.0
