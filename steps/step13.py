"""Step 13: Backward through several inputs and outputs

Since step 11 we can compute a sum but not differentiate it. What does backward of a function with
two inputs return? One gradient for each input: how fast the final result L changes with x0, and how
fast with x1. It is given one gradient for each output: dL/dy0, dL/dy1, ... The local derivatives
are now partial derivatives (step 04), and the chain rule adds over the outputs:

    dL/dx_i = dL/dy0 * dy0/dx_i + dL/dy1 * dy1/dx_i + ...

So backward mirrors forward: one gradient for each output goes in, one gradient for each input comes
out, in the same order.

    Add   y = x0 + x1    dy/dx0 = 1     dy/dx1 = 1     both get gy itself
    Mul   y = x0 x1      dy/dx0 = x1    dy/dx1 = x0    each gets gy times the other input

An output that was not used has no gradient: its grad is None, which cannot be multiplied. It has no
influence on L, so its gradient is known: zeros, in its own shape.

The number of gradients must be right. `zip` would drop the rest without an error, and one variable
would get no gradient. `strict=True` makes it an error.

Backward has kept a list of functions since step 08. Now it can hold more than one.

There is still a large fault in it: try d(x + x)/dx. The last line of the demo shows the wrong
result, and the next step corrects it.

Changed: Variable.backward, Function.backward. New: Add.backward, Mul, mul.
Try: return only `gy` from Add.backward: zip raises ValueError. Without strict=True there is no
error, and the gradient of b is None.
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
            gys = [np.zeros_like(y.data) if y.grad is None else y.grad for y in f.outputs]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx
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
    w, x, b = Variable(2.0), Variable(0.5), Variable(1.0)
    y = add(mul(w, x), b)
    y.backward()
    print("gradients of w x + b:", w.grad, x.grad, b.grad)  # -> gradients of w x + b: 0.5 2.0 1.0

    p, q = Variable(2.0), Variable(3.0)
    add(square(p), exp(q)).backward()
    print("both branches:", p.grad, q.grad)  # -> both branches: 4.0 20.085536923187668

    class SumAndDifference(Function):
        """s = x0 + x1, d = x0 - x1"""

        def forward(self, x0, x1):
            return x0 + x1, x0 - x1

        def backward(self, gs, gd):
            return gs + gd, gs - gd

    # s d = (p + q)(p - q) = p^2 - q^2, so the derivatives are 2 p and -2 q
    p, q = Variable(3.0), Variable(2.0)
    s, d = SumAndDifference()(p, q)
    mul(s, d).backward()
    print("both outputs used:", p.grad, q.grad)  # -> both outputs used: 6.0 -4.0

    p, q = Variable(3.0), Variable(2.0)
    s, d = SumAndDifference()(p, q)
    square(d).backward()
    print("only the difference used:", s.grad, p.grad, q.grad)
    # -> only the difference used: None 2.0 -2.0

    class OneShort(Add):
        def backward(self, gy):
            return gy

    try:
        OneShort()(p, q).backward()
    except ValueError as error:
        print(error)  # -> zip() argument 2 is shorter than argument 1

    x = Variable(3.0)
    add(x, x).backward()
    print("d(x + x)/dx should be 2, not", x.grad)  # -> d(x + x)/dx should be 2, not 1.0
