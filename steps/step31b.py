"""Step 31b: requires_grad and leaves

A model learns a weight w for each pixel of an image. Step 31a computes a gradient for everything in
the formula: for w, but also for the image and the target. Nothing changes the data, so these
gradients are of no use. In the demo they are 16 of the 24 MB that are left after backward, and the
calls that only prepare the image are recorded too.

So each tensor has a flag: tensor(2.0, requires_grad=True) gets a gradient. Three rules follow:

- The result of a call requires a gradient if one of its inputs does.
- If no input does, the call is not recorded, and its result has no grad_fn.
- A tensor that no recorded call has made is a leaf (is_leaf). After backward, leaves that require
  a gradient have one, and nothing else has. To freeze a part of a model, set its flags to False.

    w (leaf, requires_grad) ---+
                               Mul ---+
    x (leaf, no gradient) -----+     Sub --- ...     backward skips x and t
    t (leaf, no gradient) -----------+

(A formula still computes the gradients of all its inputs; those of x and t are dropped.)

requires_grad is a property with a setter, a method that runs at each assignment, also at that of
__init__. It refuses integers, which cannot change a little, and results, whose flag follows from
the inputs. (The value is stored in `_requires_grad`.)

tensor() is PyTorch's function for new leaves. It copies the data, and Python's floats become
float32, half the memory of NumPy's float64. Tensor(array) takes an array as it is, without a copy.

The trap: backward raises an error only if nothing at all requires a gradient. If w requires one and
b was forgotten, b.grad is None. ("Element 0", since PyTorch can start from several tensors.)

Changed: Tensor, Tensor.backward, Function.__call__. New: requires_grad, is_leaf, tensor.
Try: take `if not x.requires_grad: continue` out of Tensor.backward, both lines. The target then
gets 8 MB of gradient, and x.grad is a tensor.
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
    """An array that can be differentiated.

    array: the NumPy array with the elements. grad: what backward() has added up here, or None.
    requires_grad: whether gradients flow to this tensor. grad_fn: the call that made it, or None.
    """

    # Make NumPy's operators defer to ours, so that `array + tensor` calls __radd__.
    __array_ufunc__ = None

    def __init__(self, data, requires_grad=False):
        self.array = as_array(data)
        self.grad = None
        self.grad_fn = None
        self._requires_grad = False
        if requires_grad:
            self.requires_grad = True

    @property
    def requires_grad(self):
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag):
        if self.grad_fn is not None:
            raise RuntimeError("you can only change requires_grad flags of leaf variables")
        if flag and self.array.dtype.kind != "f":
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.array.dtype}"
            )
        self._requires_grad = flag

    @property
    def is_leaf(self):
        return self.grad_fn is None

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
        if self.grad_fn is not None:
            return f"tensor({text}, grad_fn=<{type(self.grad_fn).__name__}>)"
        return f"tensor({text}{', requires_grad=True' if self._requires_grad else ''})"

    def backward(self, create_graph=False):
        """Add to the grad of each leaf behind this tensor the derivative with respect to it.

        With create_graph the gradients are recorded, and can be differentiated.
        """
        if not self.requires_grad:
            raise RuntimeError(
                "element 0 of tensors does not require grad and does not have a grad_fn"
            )
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
                    if not x.requires_grad:
                        continue
                    # Not +=: gx may have other owners.
                    x.grad = gx if x.grad is None else x.grad + gx
                    if x.grad_fn is not None and x.grad_fn not in seen:
                        seen.add(x.grad_fn)
                        heapq.heappush(waiting, (-x.grad_fn.sequence_nr, x.grad_fn))
            y.grad = None  # only leaves keep theirs


def tensor(data, dtype=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array, which keeps its type."""
    array = np.array(data, dtype)
    if dtype is None and array.dtype == np.float64 and not hasattr(data, "dtype"):
        array = array.astype(np.float32)  # Python's floats, as in PyTorch
    return Tensor(array, requires_grad)


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
        if GradMode.enabled and any(x.requires_grad for x in inputs):
            self.sequence_nr = next(Function.sequence_numbers)
            self.inputs = inputs
            self.output = weakref.ref(output)  # strong would be a cycle
            output._requires_grad, output.grad_fn = True, self
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

    def fit(data_requires_grad):
        w = tensor(np.zeros(1_000_000), requires_grad=True)
        image = tensor(np.ones(1_000_000), requires_grad=data_requires_grad)
        target = tensor(np.ones(1_000_000), requires_grad=data_requires_grad)
        x = (image - 0.5) / 0.25
        ((w * x - target) ** 2).backward()
        grads = [leaf.grad for leaf in (w, image, target) if leaf.grad is not None]
        megabytes = sum(grad.array.nbytes for grad in grads) // 10**6
        return f"{megabytes} MB of gradients, x is recorded: {x.grad_fn is not None}"

    print("as in step 31a:", fit(True))
    # -> as in step 31a: 24 MB of gradients, x is recorded: True
    print("for w only:", fit(False))  # -> for w only: 8 MB of gradients, x is recorded: False

    row = np.array([1.0, 2.0])
    x = tensor(row)
    row[0] = 100.0
    print(x, x.dtype)  # -> tensor([1., 2.]) float64
    print(tensor([1.5, 2]).dtype, tensor([1, 2]).dtype)  # -> float32 int64

    w, x = tensor(3.0, requires_grad=True), tensor(2.0)
    y = w * x
    print(w, x, y)  # -> tensor(3., requires_grad=True) tensor(2.) tensor(6., grad_fn=<Mul>)
    print("leaves:", w.is_leaf, x.is_leaf, y.is_leaf)  # -> leaves: True True False
    y.backward()
    print("gradients:", w.grad, x.grad, y.grad)  # -> gradients: tensor(2.) None None

    w.requires_grad = False  # frozen
    print("frozen:", (w * x).requires_grad)  # -> frozen: False

    def refused(action):
        try:
            action()
        except RuntimeError as error:
            print(error)

    refused(lambda: (x * x).backward())
    # -> element 0 of tensors does not require grad and does not have a grad_fn
    refused(lambda: setattr(y, "requires_grad", False))
    # -> you can only change requires_grad flags of leaf variables
    refused(lambda: tensor(3, requires_grad=True))
    # -> only Tensors of floating point dtype can require gradients, this one is int64
