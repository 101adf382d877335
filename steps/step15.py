"""Step 15: Why the order of backward matters

Step 14 computes x + x correctly, and gets this wrong:

    a = x^2,  y = a + e^a             dy/dx = (1 + e^a) * 2 x,  at x = 1: 7.44

It says 14.87. With the two terms swapped, e^a + a, it says 9.44. Since the order of the terms
matters, the fault is in the order of the visits, not in the formulas. The graph is the smallest
diamond:

                       +------------------+
    x --> Square --> a +                  Add --> y
                       +--> Exp --> b ----+

Two paths lead from Add back to a, and Square comes before a. The loop adds the creator of an input
to its list whenever it meets the input, so once for each path:

    a + e^a:  Add Exp Square Square      Square runs twice, both times with all of a's gradient
    e^a + a:  Add Square Exp Square      Square runs before Exp has added its part, and then again

"Visit each function once" is not enough. The first order becomes right; the second becomes Add
Square Exp, and x gets the derivative of one term only, 2.00. A function may only run after all the
functions that use its outputs have run. Only then is the gradient of its outputs complete.

The demo runs the functions in each of these orders. One order is right for both formulas: Add Exp
Square.

(An order in which each node comes after all that it depends on is called topological. PyTorch
counts, for each node, the users that have not run yet, and runs it when the count is zero.)

Changed: Variable.backward also returns the functions in the order in which they ran, for the demo.
The next step removes that again.
Try: write `functions.pop(0)` for `functions.pop()`. The two orders change places, and both results
are still wrong.
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
        """Return the functions in the order in which they ran: for this step only, to look at."""
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        calls = []
        functions = [self.creator]
        while functions:
            f = functions.pop()
            if f is None:
                continue
            calls.append(f)
            gys = [np.zeros_like(y.data) if y.grad is None else y.grad for y in f.outputs]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx if x.grad is None else x.grad + gx  # not +=: gx may have other owners
                functions.append(x.creator)
        return calls


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

    def names(functions):
        return " ".join(type(f).__name__ for f in functions)

    x = Variable(1.0)
    a = square(x)
    y = add(a, exp(a))
    order = y.backward()
    print("a + e^a:", x.grad, "by", names(order))
    # -> a + e^a: 14.87312731383618 by Add Exp Square Square

    x_swapped = Variable(1.0)
    a_swapped = square(x_swapped)
    y_swapped = add(exp(a_swapped), a_swapped)
    order_swapped = y_swapped.backward()
    print("e^a + a:", x_swapped.grad, "by", names(order_swapped))
    # -> e^a + a: 9.43656365691809 by Add Square Exp Square

    def f(x):
        a = square(x)
        return add(a, exp(a))

    print("numerical:", numerical_diff(f, x))  # -> numerical: 7.43656

    def run_backward(y, x, functions):
        """Run these functions backward, in this order. Returns the gradient of x."""
        for f in functions:
            for variable in [*f.inputs, *f.outputs]:
                variable.cleargrad()
        y.grad = np.ones_like(y.data)
        for f in functions:
            gxs = f.backward(f.outputs[0].grad)
            gxs = gxs if isinstance(gxs, tuple) else (gxs,)
            for variable, gx in zip(f.inputs, gxs, strict=True):
                variable.grad = gx if variable.grad is None else variable.grad + gx
        return x.grad

    once = list(dict.fromkeys(order))
    print("once:", run_backward(y, x, once), "by", names(once))
    # -> once: 7.43656365691809 by Add Exp Square
    once = list(dict.fromkeys(order_swapped))
    print("once, but early:", run_backward(y_swapped, x_swapped, once), "by", names(once))
    # -> once, but early: 2.0 by Add Square Exp
    late = [once[0], once[2], once[1]]
    print("once and late enough:", run_backward(y_swapped, x_swapped, late), "by", names(late))
    # -> once and late enough: 7.43656365691809 by Add Exp Square
