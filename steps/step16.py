"""Step 16: Topological order

Step 15 asks for an order in which each function runs once, after all the functions that use its
outputs. The order in which the graph was made gives it to us.

Each call takes a number from one counter: 0, 1, 2, ... A variable must exist before a call can use
it. So a function always has a higher number than the functions that made its inputs, and running
them from the highest number to the lowest is a correct order:

    a = x^2          Square  0
    b = e^a          Exp     1
    y = a + b        Add     2          backward: 2, 1, 0

The waiting functions are kept in a heap: a list from which `heapq.heappop` takes the smallest entry
without a search through all of them. The numbers are stored as negatives, so that the highest comes
out first. (No two are equal, so the functions beside them are never compared.) A set remembers
which functions were put in, so none is put in twice.

The set does more than correct the sum. Take x + x, add that to itself, and so on: n doublings are n
functions, but 2^n paths lead from the end to the beginning. Plain recursion, from each variable
into its inputs, follows every path. It can get the sum right, as in the demo, but it needs 65,535
calls for n = 16, and twice as many for each further doubling. Here n doublings are n calls.

(PyTorch numbers its nodes too, and uses the same name: sequence_nr.)

Changed: Variable.backward, Function.__call__. New: Function.sequence_numbers. Gone: the order of
the calls, which step 15 returned.
Try: put the numbers into the heap without the minus signs, in both places. Square then runs before
Exp, and "a + e^a" prints 2.0.
"""

import heapq
import itertools

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
        """Add d(self)/dx to x.grad, for every variable x that this one was computed from."""
        if self.grad is None:
            self.grad = np.ones_like(self.data)
        if self.creator is None:
            return
        waiting = [(-self.creator.sequence_nr, self.creator)]  # a heap: the latest call comes first
        seen = {self.creator}
        while waiting:
            _, f = heapq.heappop(waiting)
            gys = [np.zeros_like(y.data) if y.grad is None else y.grad for y in f.outputs]
            gxs = f.backward(*gys)
            if not isinstance(gxs, tuple):
                gxs = (gxs,)
            for x, gx in zip(f.inputs, gxs, strict=True):
                x.grad = gx if x.grad is None else x.grad + gx  # not +=: gx may have other owners
                if x.creator is not None and x.creator not in seen:
                    seen.add(x.creator)
                    heapq.heappush(waiting, (-x.creator.sequence_nr, x.creator))


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        ys = self.forward(*[x.data for x in inputs])
        if not isinstance(ys, tuple):
            ys = (ys,)
        outputs = [Variable(y) for y in ys]
        self.sequence_nr = next(Function.sequence_numbers)
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
    x = Variable(1.0)
    a = square(x)
    b = exp(a)
    y = add(a, b)
    print("numbers:", [v.creator.sequence_nr for v in (a, b, y)])  # -> numbers: [0, 1, 2]
    y.backward()
    print("a + e^a:", x.grad)  # -> a + e^a: 7.43656365691809
    x.cleargrad()
    x.backward()
    print("x has no creator, and dx/dx is", x.grad)  # -> x has no creator, and dx/dx is 1.0
    x.cleargrad()
    a = square(x)
    add(exp(a), a).backward()
    print("e^a + a:", x.grad)  # -> e^a + a: 7.43656365691809

    class CountedAdd(Add):
        calls = 0

        def backward(self, gy):
            CountedAdd.calls += 1
            return super().backward(gy)

    def doublings(x, n):
        for _ in range(n):
            x = CountedAdd()(x, x)
        return x

    def by_recursion(y, gy):
        """Plain recursion: each path from y to the beginning is followed on its own."""
        y.grad = gy if y.grad is None else y.grad + gy
        if y.creator is not None:
            for x, gx in zip(y.creator.inputs, y.creator.backward(gy), strict=True):
                by_recursion(x, gx)

    for n in (4, 16):
        CountedAdd.calls = 0
        x = Variable(1.0)
        by_recursion(doublings(x, n), np.array(1.0))
        recursive_calls, recursive_grad = CountedAdd.calls, x.grad

        CountedAdd.calls = 0
        x = Variable(1.0)
        doublings(x, n).backward()
        print(f"n = {n}: {recursive_calls} calls, or {CountedAdd.calls}.", recursive_grad, x.grad)
        # -> n = 4: 15 calls, or 4. 16.0 16.0
        # -> n = 16: 65535 calls, or 16. 65536.0 65536.0
