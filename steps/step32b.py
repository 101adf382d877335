"""Step 32b: Gradients in a dictionary

backward stores gradients in .grad of every tensor on its way, and clears each after use. If a pass
stops in the middle (an error in a formula, Ctrl-C), some remain, and the next pass adds to them. In
the demo the derivative of (2x)^2 at 3 is then 48 instead of 24.

So a pass keeps its gradients to itself, in a dictionary that vanishes with it. (PyTorch's engine
does so too.) Its keys are the places where gradients wait: a node (a call), or a leaf. At the end
only leaves are left in it, and only their .grad is written. For z = x * w + 1, x = 3 and w = 5:

    arrived                  heap        what happens next
    {Add: 1}                 Add         Add.backward(1) returns 1 for x * w
    {Mul: 1}                 Mul         Mul.backward(1) returns 5 for x and 3 for w
    {x: 5, w: 3}             empty       x.grad = 5, w.grad = 3

Each round of the loop has two halves. First gradients arrive at some tensors: at z in the first
round, later at the inputs of the node just visited. Then the newest node leaves the heap (step 16)
and the dictionary, and its backward gives the next gradients. The set `seen` is gone: a node enters
the heap with its first gradient.

The trap: a gradient may be used only when all its parts have arrived. They have, since every call
that used the result is newer than its node, and was visited before.

Changed: Tensor.backward. New: backward_pass.
Try: in backward_pass write `arrived[node] = grad` in both branches. The derivative of x * x is 3.
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
        with set_grad_enabled(create_graph):
            for leaf, grad in backward_pass(self, gradient).items():
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad


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


def backward_pass(tensor, grad):
    """Carry the gradient of `tensor` back to the leaves: {leaf: gradient}.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.
    """
    arrived = {}  # node or leaf -> its gradient
    heap = []
    tensors, grads = [tensor], [grad]
    while True:
        # Not strict: an argument that is a number, such as the exponent of x ** n, has no gradient.
        for x, grad in zip(tensors, grads, strict=False):
            if not isinstance(x, Tensor) or not x.requires_grad:
                continue
            node = x.grad_fn or x  # a leaf stands for itself
            if node not in arrived:
                arrived[node] = grad
                if x.grad_fn is not None:
                    heapq.heappush(heap, (node.sequence_nr, node))
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
        if not heap:
            return arrived
        _, node = heapq.heappop(heap)
        grads = node.backward(arrived.pop(node))
        if not isinstance(grads, tuple):
            grads = (grads,)
        tensors = node.inputs


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

    def old_backward(y, stops):
        """backward as in step 32a, for two calls in a row. If it `stops`, it does only one."""
        m, grad = y.grad_fn.inputs[0], y.grad_fn.backward(tensor(1.0))
        m.grad = grad if m.grad is None else m.grad + grad
        if not stops:
            x = m.grad_fn.inputs[0]
            x.grad, m.grad = m.grad_fn.backward(m.grad)[0], None  # Mul has two gradients

    x = tensor(3.0, requires_grad=True)
    y = (x * 2) ** 2
    old_backward(y, stops=True)
    old_backward(y, stops=False)
    print("the old way, after a stop:", x.grad.item())  # -> the old way, after a stop: 48.0

    # The table of the text: what is left at the end. This pass writes no .grad.
    x, w = tensor(3.0, requires_grad=True), tensor(5.0, requires_grad=True)
    y = x * w
    z = y + 1
    with no_grad():
        left = backward_pass(z, tensor(1.0))
    print("left at the end:", left[x], left[w], len(left))
    # -> left at the end: tensor(5.) tensor(3.) 2
    print("nothing is written yet:", x.grad, y.grad)  # -> nothing is written yet: None None
    z.backward()
    print("after z.backward():", x.grad, w.grad, y.grad)
    # -> after z.backward(): tensor(5.) tensor(3.) None

    x.grad = None
    (x * x).backward()  # two gradients arrive at x
    print("d(x * x)/dx =", x.grad)  # -> d(x * x)/dx = tensor(6.)
    (x**2).backward()  # one for two arguments: the exponent has none
    print("and added to it:", x.grad)  # -> and added to it: tensor(12.)
