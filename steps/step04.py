"""Step 04: Numerical differentiation

We can compute y. How fast does y change when x changes? That is the derivative, and its value at a
point is the slope of the curve there:

    f'(x) = limit of (f(x + h) - f(x)) / h   for h towards 0

A computer cannot take a limit, but it can take a small number eps, run f twice, and divide. A step
to both sides of x is better than a step to one side:

    forward difference    (f(x + eps) - f(x)) / eps                 error falls as eps
    central difference    (f(x + eps) - f(x - eps)) / (2 eps)       error falls as eps^2

In the central difference, most of the error to the left cancels the error to the right. "Falls as
eps^2" means: a step of a tenth makes a hundredth of the error. The demo's table shows it.

This needs no rules of calculus, only f itself. Two reasons not to stop here:

It is not exact, and a smaller eps does not help. That is the trap: f(x + eps) and f(x - eps) are
nearly equal, so their difference loses its leading digits, and rounding errors remain. The error
first falls with eps and then rises. With eps = 1e-16 even 2 + eps is 2, and the result is 0.

And it is slow. A function of n inputs has n partial derivatives: how fast the result changes with
one input while the others stay fixed. Together they are called the gradient. Here it takes 2 n
runs of f. A neural network is a formula with adjustable numbers, its weights. Training changes them
in many small steps. With a million weights, each step would take two million runs.

It stays useful as a test: slow, nearly right, and too simple to be wrong. Step 10 uses it so.

(PyTorch does the same in `torch.autograd.gradcheck`, for tests only.)

New: numerical_diff.
Try: numerical_diff(f, Variable(np.array(0.5, np.float32))). Only three digits are right, and with
eps=1e-8 the result is 0.
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


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    square, exp = Square(), Exp()

    def f(x):
        return square(exp(square(x)))

    two = Variable(np.array(2.0))
    print("slope of x^2 at 2:", numerical_diff(square, two))  # -> slope of x^2 at 2: 4.0000000000
    zero = Variable(np.array(0.0))
    print("slope of e^x at 0:", numerical_diff(exp, zero))  # -> slope of e^x at 0: 1.00000000

    x = Variable(np.array(0.5))
    exact = 4 * 0.5 * np.exp(2 * 0.5**2)  # (e^(x^2))^2 is e^(2 x^2), its derivative 4 x e^(2 x^2)
    print("numerical:", numerical_diff(f, x))  # -> numerical: 3.29744263
    print("by hand:", exact)  # -> by hand: 3.297442541400256

    def forward_diff(f, x, eps=1e-4):
        return (f(Variable(x.data + eps)).data - f(x).data) / eps

    print(f"forward difference: error {abs(forward_diff(f, x) - exact):.0e}")
    # -> forward difference: error 7e-04

    errors = {
        e: abs(numerical_diff(f, x, e) - exact) for e in (1e-1, 1e-2, 1e-3, 1e-5, 1e-9, 1e-13)
    }
    for eps, error in errors.items():
        print(f"central, eps {eps:.0e}: error {error:.0e}")
        # -> central, eps 1e-01: error 9e-02
        # -> central, eps 1e-02: error 9e-04
        # -> central, eps 1e-03: error 9e-06
        # -> central, eps 1e-05: error 9e-10
        # -> ...
    best = min(errors, key=errors.get)
    print("best in the middle:", 1e-9 <= best <= 1e-5)  # -> best in the middle: True
    print("eps = 1e-16:", numerical_diff(square, two, 1e-16))  # -> eps = 1e-16: 0.0

    # The gradient of a function of three inputs: each input is changed by itself, in 6 runs.
    def g(x):
        return x[0] * x[1] + x[2]

    point, eps = np.array([2.0, 3.0, 5.0]), 1e-4
    gradient = [(g(point + step) - g(point - step)) / (2 * eps) for step in eps * np.eye(3)]
    print("gradient of x0 x1 + x2:", np.round(gradient, 6))  # -> gradient of x0 x1 + x2: [3. 2. 1.]
