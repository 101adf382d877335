"""Step 10: Tests and gradient checking

So far we trust the code because a few printed numbers looked right. The next steps rewrite the
engine several times, and a mistake in a rewrite must be found at once.

A test is a small program that knows the answer. Python's `unittest` runs every method whose name
starts with `test`, and reports each one that fails. For square the answers are easy: 3^2 = 9, and
the derivative at 3 is 2 * 3 = 6.

For a long formula we do not know the derivative. But we have two ways to compute it, which share
only forward:

    backward          exact, but wrong whenever a backward method is wrong
    numerical_diff    needs no backward method, and is right to about seven digits

If they agree at a random x, both are very likely right. This is called gradient checking. The two
are never equal to the last digit, so compare with a tolerance: `np.allclose`.

A test that cannot fail proves nothing. So the demo also checks a wrong backward, x^2 where 2 x
should be. At a random x the check finds the mistake. At x = 2 it does not, because there both are
4: the first trap. The second: numerical_diff changes all elements of an array at once. That is
right for functions that treat each element alone, like square and exp. For a sum it is wrong; each
element must be changed by itself.

(PyTorch's own check is `torch.autograd.gradcheck`.)

Changed: nothing above the demo; the demo is the test suite.
Try: break Exp.backward (return gy alone). Two tests fail, and the report names them.
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


def square(x):
    return Square()(x)


def exp(x):
    return Exp()(x)


def numerical_diff(f, x, eps=1e-4):
    """The derivative of f at x by central difference: (f(x + eps) - f(x - eps)) / (2 eps)."""
    y0 = f(Variable(x.data - eps))
    y1 = f(Variable(x.data + eps))
    return (y1.data - y0.data) / (2 * eps)


if __name__ == "__main__":
    import unittest

    rng = np.random.default_rng(0)

    def gradients(f, x):
        """The gradient of f at x, by backward and by numerical_diff."""
        x = Variable(x)
        f(x).backward()
        return x.grad, numerical_diff(f, x)

    class SquareTest(unittest.TestCase):
        def test_forward(self):
            self.assertEqual(square(Variable(2.0)).data, 4.0)

        def test_backward(self):
            x = Variable(3.0)
            square(x).backward()
            self.assertEqual(x.grad, 6.0)

    class GradientCheck(unittest.TestCase):
        def test_square(self):
            self.assertTrue(np.allclose(*gradients(square, rng.random(1))))

        def test_exp(self):
            self.assertTrue(np.allclose(*gradients(exp, rng.random((2, 3)))))

        def test_chain(self):
            pairs = gradients(lambda x: square(exp(square(x))), rng.random((2, 3)))
            self.assertTrue(np.allclose(*pairs))

    class BoxTest(unittest.TestCase):
        def test_a_list_is_refused(self):
            with self.assertRaisesRegex(TypeError, "not list"):
                Variable([1.0, 2.0])

    report = unittest.TestResult()
    for case in (SquareTest, GradientCheck, BoxTest):
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(report)
    for test, trace in report.failures + report.errors:
        print(test, trace, sep="\n")
    print(report.testsRun, "tests ran, all passed:", report.wasSuccessful())
    # -> 6 tests ran, all passed: True

    # Does the check notice a mistake? This derivative is right only at 0 and at 2.
    class WrongSquare(Square):
        def backward(self, gy):
            return self.input.data**2 * gy

    for x in (np.array(2.0), rng.random(1)):
        print("passes:", np.allclose(*gradients(lambda x: WrongSquare()(x), x)))
        # -> passes: True
        # -> passes: False

    # The derivative with respect to each element is 1. All three changed together give 3.
    slope = numerical_diff(lambda x: Variable(x.data.sum()), Variable(np.ones(3)))
    print("derivative of a sum:", slope)  # -> derivative of a sum: 3.00000000
