"""Step 31a: PyTorch's names: Tensor, grad_fn

A program that uses our framework cannot run on PyTorch, which has no Variable, no creator and no
cleargrad. From now on the names are PyTorch's, so that the same program can run on both.

    until now           from here on
    Variable            Tensor
    v.creator           t.grad_fn          the function that made it, or None
    v.data              t.array            PyTorch's t.data is a Tensor, so that name stays free
    v.size              t.numel()          the number of elements
    v.cleargrad()       t.grad = None
    square(v)           t**2
    variable([1. 2.])   tensor([1., 2.])   what print shows

A few things are laid aside until Part II: functions with several outputs, retain_grad,
numerical_diff, the names of variables and the drawing of a graph. So each call has exactly one
output, and a Function keeps one weak reference instead of a list. That makes backward shorter: it
only comes to an output through a gradient of that output, so no zeros stand in for a missing one.

The trap: Python lets you set any attribute. Old lines such as `x.data = ...` raise no error after
this step, but they have no effect.

Changed: Variable is Tensor, as_variable is as_tensor. Gone: Square, numerical_diff, the drawing.
Try: in Function.__call__ write `self.output = lambda: output`, which is a strong reference. The
last line of the demo then prints False: output and function keep each other alive.
"""

import contextlib
import heapq
import itertools
import weakref

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.number)):
        return np.array(x)
    raise TypeError(f"a Tensor holds an ndarray or a number, not {type(x).__name__}")


class GradMode:
    """Whether calls are recorded. A class attribute, so that everything shares one switch."""

    enabled = True


@contextlib.contextmanager
def set_grad_enabled(flag):
    """Inside this block calls are recorded if flag is true, and not recorded if it is false."""
    before = GradMode.enabled
    GradMode.enabled = flag
    try:
        yield
    finally:
        GradMode.enabled = before


def no_grad():
    """Inside this block no call is recorded: outputs have no grad_fn."""
    return set_grad_enabled(False)


class Tensor:
    """An array, with the function that made it and a place for a gradient."""

    # Make NumPy's operators defer to ours, so that `array + tensor` calls __radd__.
    __array_ufunc__ = None

    def __init__(self, data):
        self.array = as_array(data)
        self.grad = None
        self.grad_fn = None

    @property
    def shape(self):
        return self.array.shape

    @property
    def ndim(self):
        return self.array.ndim

    @property
    def dtype(self):
        return self.array.dtype

    def numel(self):
        """The number of elements."""
        return self.array.size

    def __len__(self):
        return len(self.array)

    def __repr__(self):
        indent = " " * len("tensor(")  # aligns the rows of a matrix
        text = np.array2string(self.array, separator=", ", prefix=indent)
        return f"tensor({text})"

    def backward(self, create_graph=False):
        """Add d(self)/dx to x.grad, for every tensor x that this one was computed from.

        Tensors that a function made lose their gradient again. With create_graph the gradients are
        recorded like any computation, so they have a graph.
        """
        if self.grad is None:
            self.grad = Tensor(np.ones_like(self.array))
        if self.grad_fn is None:
            return
        waiting = [(-self.grad_fn.sequence_nr, self.grad_fn)]  # a heap: the latest call comes first
        seen = {self.grad_fn}
        while waiting:
            _, f = heapq.heappop(waiting)
            y = f.output()  # not None: the functions in `seen` that use it are keeping it
            with set_grad_enabled(create_graph):
                gxs = f.backward(y.grad)
                if not isinstance(gxs, tuple):
                    gxs = (gxs,)
                for x, gx in zip(f.inputs, gxs, strict=True):
                    # Not +=: gx may have other owners.
                    x.grad = gx if x.grad is None else x.grad + gx
                    if x.grad_fn is not None and x.grad_fn not in seen:
                        seen.add(x.grad_fn)
                        heapq.heappush(waiting, (-x.grad_fn.sequence_nr, x.grad_fn))
            y.grad = None


def as_tensor(x, dtypes):
    """x itself if it is a Tensor, else a new Tensor around it: a constant of the formula.

    A Python number has no dtype. It gets the one that NumPy gives it beside arrays of `dtypes`.
    """
    if isinstance(x, (int, float)):
        x = np.array(x, np.result_type(x, *dtypes))
    return x if isinstance(x, Tensor) else Tensor(x)


class Function:
    """A step of a computation: arrays in, array out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        dtypes = [x.dtype for x in inputs if hasattr(x, "dtype")]  # Python numbers have none
        inputs = [as_tensor(x, dtypes) for x in inputs]
        output = Tensor(self.forward(*[x.array for x in inputs]))
        if GradMode.enabled:
            self.sequence_nr = next(Function.sequence_numbers)
            self.inputs = inputs
            self.output = weakref.ref(output)  # strong would be a cycle
            output.grad_fn = self
        return output

    def forward(self, *xs):
        """Compute the output array from the input arrays."""
        raise NotImplementedError

    def backward(self, gy):
        """Compute a gradient for each input from that of the output: one Tensor, or a tuple."""
        raise NotImplementedError


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return exp(self.inputs[0]) * gy


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
        return gy * x1, gy * x0


class Neg(Function):
    """y = -x, dy/dx = -1"""

    def forward(self, x):
        return -x

    def backward(self, gy):
        return -gy


class Sub(Function):
    """y = x0 - x1, dy/dx0 = 1, dy/dx1 = -1"""

    def forward(self, x0, x1):
        return x0 - x1

    def backward(self, gy):
        return gy, -gy


class Div(Function):
    """y = x0 / x1, dy/dx0 = 1 / x1, dy/dx1 = -x0 / x1^2"""

    def forward(self, x0, x1):
        return x0 / x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy / x1, -gy * x0 / x1**2


class Pow(Function):
    """y = x^n with a number n, dy/dx = n x^(n-1)"""

    def __init__(self, n):
        self.n = n

    def forward(self, x):
        return x**self.n

    def backward(self, gy):
        if self.n == 0:
            return 0 * gy  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return self.n * self.inputs[0] ** (self.n - 1) * gy


class Sin(Function):
    """y = sin x, dy/dx = cos x"""

    def forward(self, x):
        return np.sin(x)

    def backward(self, gy):
        return cos(self.inputs[0]) * gy


class Cos(Function):
    """y = cos x, dy/dx = -sin x"""

    def forward(self, x):
        return np.cos(x)

    def backward(self, gy):
        return -sin(self.inputs[0]) * gy


class Tanh(Function):
    """y = tanh x, dy/dx = 1 - y^2"""

    def forward(self, x):
        return np.tanh(x)

    def backward(self, gy):
        y = self.output()
        return (1 - y * y) * gy


class Log(Function):
    """y = log x (base e), dy/dx = 1 / x"""

    def forward(self, x):
        return np.log(x)

    def backward(self, gy):
        return gy / self.inputs[0]


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


Tensor.__add__ = add
Tensor.__radd__ = add


def mul(x0, x1):
    return Mul()(x0, x1)


Tensor.__mul__ = mul
Tensor.__rmul__ = mul


def neg(x):
    return Neg()(x)


Tensor.__neg__ = neg


def sub(x0, x1):
    return Sub()(x0, x1)


Tensor.__sub__ = sub
Tensor.__rsub__ = lambda self, other: sub(other, self)


def div(x0, x1):
    return Div()(x0, x1)


Tensor.__truediv__ = div
Tensor.__rtruediv__ = lambda self, other: div(other, self)


def pow(x, n):
    return Pow(n)(x)


Tensor.__pow__ = pow


def sin(x):
    return Sin()(x)


def cos(x):
    return Cos()(x)


def tanh(x):
    return Tanh()(x)


def log(x):
    return Log()(x)


if __name__ == "__main__":
    import gc

    m = Tensor(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    print(m * 0.5)
    # -> tensor([[0.5, 1. , 1.5],
    # ->         [2. , 2.5, 3. ]])
    print(m.shape, m.ndim, m.numel(), len(m))  # -> (2, 3) 2 6 2

    x = Tensor(0.5)
    y = tanh(x) + x**2  # two paths lead to x
    print(y, type(y.grad_fn).__name__, x.grad_fn)  # -> tensor(0.71211716) Add None
    y.backward()
    print("by hand:", 1 - np.tanh(0.5) ** 2 + 2 * 0.5)  # -> by hand: 1.786447732965927
    print("backward:", x.grad.array)  # -> backward: 1.786447732965927
    with no_grad():
        print("not recorded:", tanh(x).grad_fn)  # -> not recorded: None

    gc.disable()  # is the graph freed without Python's collector?
    y = exp(x)
    array = weakref.ref(y.array)
    del y
    print("freed at once:", array() is None)  # -> freed at once: True
    gc.enable()
