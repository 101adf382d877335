"""Step 31c: backward(v): vector-Jacobian products

y = x^2 for an x of three elements has three outputs, and y.backward() gives [2, 4, 6]. That is the
derivative of y_1 + y_2 + y_3, since backward begins with ones (step 09). If you forget to turn the
losses of three samples into one number, you get gradients all the same, of a sum that you did not
write.

Three outputs and three inputs have nine derivatives dy_i/dx_j. This table is the Jacobian matrix J.
Backward never builds it. It carries one number for each output back to one for each input:

    x.grad_j = v_1 dy_1/dx_j + v_2 dy_2/dx_j + ...       in matrices: v J, with v as a row

v_i says how much some final number L changes with y_i: it is dL/dy_i, the gradient that would
arrive at y from L. So y.backward(v) continues a pass that began elsewhere. A single 1 in v gives
one row of J. One output may leave v out, which means 1; several outputs need it. (In PyTorch v is
called gradient, and v J a vector-Jacobian product, short vjp.)

The trap: v has to have the shape of y, and this is not checked. A v of one number is broadcast,
which means that it counts for each output.

PyTorch frees a graph while it goes back, and a second pass needs retain_graph=True. Ours is kept as
long as something refers to it. So backward accepts retain_graph, and does nothing with it.

Changed: Tensor.backward takes `gradient`, and no longer begins with ones for several elements.
Try: remove the test of self.array.size and its error. "the gradient of the sum" is then printed as
[4, 8, 12], because two passes have added to it.
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

    def backward(self, gradient=None, retain_graph=None, create_graph=False):
        """Add to the grad of each leaf behind this tensor the derivative with respect to it.

        gradient is that of some number with respect to this tensor; a single element may leave it
        out, which means 1. With create_graph the gradients are recorded, and can be differentiated.
        retain_graph is there for programs that PyTorch runs too: this graph is kept in any case.
        """
        if not self.requires_grad:
            raise RuntimeError(
                "element 0 of tensors does not require grad and does not have a grad_fn"
            )
        if gradient is None:
            if self.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            gradient = Tensor(np.ones_like(self.array))
        self.grad = gradient if self.grad is None else self.grad + gradient
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
    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    try:
        y.backward()
    except RuntimeError as error:
        print(error)  # -> grad can be implicitly created only for scalar outputs
    print("nothing arrived:", x.grad)  # -> nothing arrived: None

    y.backward(tensor([1.0, 1.0, 1.0]), retain_graph=True)
    print("the gradient of the sum:", x.grad)  # -> the gradient of the sum: tensor([2., 4., 6.])

    print("J, row by row:")
    for v in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]):
        x.grad = None
        y.backward(tensor(v), retain_graph=True)
        print(x.grad)
        # -> tensor([2., 0., 0.])
        # -> tensor([0., 4., 0.])
        # -> tensor([0., 0., 6.])

    # L = y_1 + 10 y_2 + 100 y_3 has dL/dy = [1, 10, 100]. The pass goes on from there.
    dL_dy = tensor([1.0, 10.0, 100.0])
    x.grad = None
    y.backward(dL_dy)
    print("from y on:", x.grad)  # -> from y on: tensor([  2.,  40., 600.])
    x.grad = None
    (dL_dy * x**2).backward(tensor([1.0, 1.0, 1.0]))
    print("from L on:", x.grad)  # -> from L on: tensor([  2.,  40., 600.])

    w = tensor(5.0, requires_grad=True)
    (w * 3).backward()  # a single element: v = 1
    w.backward()  # dw/dw = 1, added to what is there
    print(w.grad)  # -> tensor(4.)
