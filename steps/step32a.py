"""Step 32a: A call makes a node: Function.apply

A Function object is one node of the graph, so each call needs a new one. Until now the caller had
to make it: Exp()(x). If an object is used twice, the second call replaces what the first one
recorded. In the demo this loses the derivative of e^a + e^b with respect to a, without an error.

So the call makes the object. Exp.apply(x) is a class method: it creates the object, runs forward
with it, and records the call in it. The object is passed to forward and backward as their first
parameter, which Python's methods call self. Here it is named ctx, for context, as in PyTorch: what
forward keeps there, backward finds there.

    Pow.apply(x, 3)
        ctx = Pow()                          the object of this one call
        out = ctx.forward(x.array, 3)        arrays for Tensors, all else as it is
        out.grad_fn = ctx                    the same object, now a node of the graph

The exponent is an argument like x now. Numbers go to forward as numbers, and NumPy itself keeps
float32 beside them, so as_tensor is no longer needed.

The trap: backward returns gradients by position. Arguments that are not Tensors and come last, like
the exponent, need none. So zip is no longer strict, and a formula that returns one gradient too few
by mistake is no longer noticed.

Changed: Function, Pow, all calls, whose operands are now a and b. next_sequence_nr() counts down,
so that the heap needs no minus. Formulas that do not change still say self. Gone: as_tensor.
Try: write `ctx.inputs = arrays`. Arrays have no history, so no gradient arrives: "apply:" prints
None twice.
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
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables; use detach()"
            )
        if flag and self.array.dtype.kind != "f":
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.array.dtype}"
            )
        self._requires_grad = flag

    @property
    def is_leaf(self):
        return self.grad_fn is None

    def detach(self):
        """The same elements, outside of the graph. The memory is shared."""
        return Tensor(self.array)

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

    def size(self, dim=None):
        """The shape, or the length of one dimension."""
        return self.array.shape if dim is None else self.array.shape[dim]

    def __len__(self):
        return len(self.array)

    def item(self):
        """The only element, as a Python number."""
        return self.array.item()

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return self.array.tolist()

    def numpy(self):
        """The array itself, unless the tensor requires gradients: detach() it first."""
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad: detach() it first")
        return self.array

    def __float__(self):
        return float(self.array.item())

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
        waiting = [(self.grad_fn.sequence_nr, self.grad_fn)]  # a heap: the newest call comes first
        seen = {self.grad_fn}
        while waiting:
            _, node = heapq.heappop(waiting)
            y = node.output()  # not None: the nodes in `seen` that use it are keeping it
            with set_grad_enabled(create_graph):
                grads = node.backward(y.grad)
                if not isinstance(grads, tuple):
                    grads = (grads,)
                # Not strict: a number such as the exponent of x ** n has no gradient.
                for x, grad in zip(node.inputs, grads, strict=False):
                    if not isinstance(x, Tensor) or not x.requires_grad:
                        continue
                    # Not +=: grad may have other owners.
                    x.grad = grad if x.grad is None else x.grad + grad
                    if x.grad_fn is not None and x.grad_fn not in seen:
                        seen.add(x.grad_fn)
                        heapq.heappush(waiting, (x.grad_fn.sequence_nr, x.grad_fn))
            y.grad = None  # only leaves keep theirs


def tensor(data, dtype=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array, which keeps its type."""
    array = np.array(data, dtype)
    if dtype is None and array.dtype == np.float64 and not hasattr(data, "dtype"):
        array = array.astype(np.float32)  # Python's floats, as in PyTorch
    return Tensor(array, requires_grad)


# Numbers the calls. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph."""

    @classmethod
    def apply(cls, *args):
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        ctx = cls()
        arrays = [x.array if isinstance(x, Tensor) else x for x in args]
        out = Tensor(ctx.forward(*arrays))
        if GradMode.enabled and any(isinstance(x, Tensor) and x.requires_grad for x in args):
            ctx.sequence_nr = next_sequence_nr()
            ctx.inputs = args
            ctx.output = weakref.ref(out)  # strong would be a cycle
            out._requires_grad, out.grad_fn = True, ctx
        return out

    def forward(ctx, *arrays):
        """Compute the output array from the input arrays."""
        raise NotImplementedError

    def backward(ctx, g):
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
    """y = x^n with a number n;   dy/dx = n x^(n-1)."""

    def forward(ctx, x, n):
        return x**n

    def backward(ctx, g):
        x, n = ctx.inputs
        if n == 0:
            return 0 * g  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return n * x ** (n - 1) * g


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
    return Exp.apply(x)


def add(a, b):
    return Add.apply(a, b)


Tensor.__add__ = add
Tensor.__radd__ = add


def mul(a, b):
    return Mul.apply(a, b)


Tensor.__mul__ = mul
Tensor.__rmul__ = mul


def neg(x):
    return Neg.apply(x)


Tensor.__neg__ = neg


def sub(a, b):
    return Sub.apply(a, b)


Tensor.__sub__ = sub
Tensor.__rsub__ = lambda self, other: sub(other, self)


def div(a, b):
    return Div.apply(a, b)


Tensor.__truediv__ = div
Tensor.__rtruediv__ = lambda self, other: div(other, self)


def pow(x, n):
    return Pow.apply(x, n)


Tensor.__pow__ = pow


def sin(x):
    return Sin.apply(x)


def cos(x):
    return Cos.apply(x)


def tanh(x):
    return Tanh.apply(x)


def log(x):
    return Log.apply(x)


if __name__ == "__main__":

    def call(f, x):
        """A call as in step 31: the caller brings the object."""
        out = Tensor(f.forward(x.array))
        f.sequence_nr, f.inputs, f.output = next_sequence_nr(), (x,), weakref.ref(out)
        out._requires_grad, out.grad_fn = True, f
        return out

    a, b = tensor(0.0, requires_grad=True), tensor(1.0, requires_grad=True)
    f = Exp()
    (call(f, a) + call(f, b)).backward()
    print("one object, two calls:", a.grad, b.grad)
    # -> one object, two calls: None tensor(2.718282)

    b.grad = None
    (exp(a) + exp(b)).backward()
    print("apply:", a.grad, b.grad)  # -> apply: tensor(1.) tensor(2.718282)

    x = tensor([1.0, 2.0], requires_grad=True)
    y = Pow.apply(x, 3)
    print(type(y.grad_fn).__name__, y.grad_fn.inputs)
    # -> Pow (tensor([1., 2.], requires_grad=True), 3)
    y.backward(tensor([1.0, 1.0]))
    print(x.grad, x.grad.dtype)  # -> tensor([ 3., 12.]) float32
    print("x^0:", Pow.apply(x, 0).grad_fn.backward(tensor(1.0)))  # -> x^0: tensor(0.)

    print("numbers:", (1 - x / 2 * 0.1).dtype, 1 - x / 2 * 0.1)
    # -> numbers: float32 tensor([0.95, 0.9 ], grad_fn=<Sub>)
    x.grad = None
    (neg(x) + sin(x) + cos(x) + tanh(x) + log(x)).backward(tensor([1.0, 1.0]))
    print("the others:", x.grad)  # -> the others: tensor([ 0.11880565, -1.7547934 ])
