"""Step 32d: Keep only what the formula needs: save_for_backward

A node keeps all its inputs, whether its formula needs them or not. d(a + b)/da is 1, for which
neither a nor b is needed. Yet a sum of a hundred terms, each of one megabyte, keeps all its
intermediate results until backward: 100 MB, where one is in use.

Forward knows what its formula needs, so forward says it (in PyTorch too):

    Add, Sub, Neg       nothing
    Mul, Div            a and b
    Pow                 x (and the number n, as an attribute of ctx)
    Exp Log Sin ...     x

ctx.save_for_backward(a, b) keeps these, and backward finds them in ctx.saved. The graph holds
together by its edges alone, so Python frees everything else when the program lets it go: of
z = x * w + 1, x and w stay, and the product's array does not.

Forward sees arrays, so it saves arrays. A formula needs the Tensors, with their history, or a
second derivative would be cut off. So apply looks for the Tensor to which each saved array belongs,
and compares with `is`. Until now x.detach() held the same array object as x, and x * x.detach()
would take the constant for x. So each Tensor makes its own array object, a view of the same memory.

The trap: an output cannot be saved in this way. Its Tensor refers to the node, and a node that
refers to it is the cycle of step 17a. A weak reference, as Tanh had, is of no use: nothing else
keeps that Tensor now. So Exp and Tanh save x, and compute e^x or tanh x again. The next step does
better.

Changed: apply keeps `saved` instead of inputs and output; Tensor.__init__; all formulas that read
inputs or output. Div has b * b, so as not to depend on Pow. New: save_for_backward, as_tensors.
Try: take `.view()` out of Tensor.__init__. "x times a constant" then has a history.
"""

import contextlib
import heapq
import itertools

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

    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None

    def __init__(self, data, requires_grad=False):
        # An array object of its own, on the same memory: as_tensors tells Tensors apart by it.
        self.array = as_array(data).view()
        self.grad = None
        self._requires_grad = False
        self._edge = None  # where a gradient of this tensor goes; None for a leaf
        if requires_grad:
            self.requires_grad = True

    @property
    def requires_grad(self):
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag):
        if self._edge is not None:
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
    def grad_fn(self):
        return None if self._edge is None else self._edge[0]

    @property
    def is_leaf(self):
        return self._edge is None

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
        if self._edge is not None:
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
            for leaf, grad in backward_pass([edge_of(self)], [gradient]).items():
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad


def tensor(data, dtype=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array, which keeps its type."""
    array = np.array(data, dtype)
    if dtype is None and array.dtype == np.float64 and not hasattr(data, "dtype"):
        array = array.astype(np.float32)  # Python's floats, as in PyTorch
    return Tensor(array, requires_grad)


def edge_of(tensor):
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


# Numbers the calls. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph."""

    saved = ()

    @classmethod
    def apply(cls, *args):
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        ctx = cls()
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        arrays = [x.array if isinstance(x, Tensor) else x for x in args]
        out = Tensor(ctx.forward(*arrays))
        if GradMode.enabled and any(edge is not None for edge in ctx.edges):
            ctx.sequence_nr = next_sequence_nr()
            ctx.saved = ctx.as_tensors(args)
            out._requires_grad, out._edge = True, (ctx, 0)
        return out

    def save_for_backward(ctx, *values):
        """Keep arrays of inputs for backward, where they are the Tensors `ctx.saved`."""
        ctx.saved = values

    def as_tensors(ctx, args):
        """The Tensors among `args` whose arrays forward has saved."""
        tensors = [x for x in args if isinstance(x, Tensor)]
        return [next((x for x in tensors if x.array is value), value) for value in ctx.saved]

    def forward(ctx, *arrays):
        """Compute an array from the arrays, and keep what backward needs."""
        raise NotImplementedError

    def backward(ctx, g):
        """Compute a gradient for each input from that of the output: one Tensor, or a tuple."""
        raise NotImplementedError


def backward_pass(edges, grads):
    """Carry gradients from the edges of the outputs to the leaves: {leaf: gradient}.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.
    """
    arrived = {}  # node or leaf -> its gradient
    heap = []
    while True:
        # Not strict: an argument that is a number, such as the exponent of x ** n, has no gradient.
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None:
                continue
            node, _ = edge
            if node not in arrived:
                arrived[node] = grad
                if node.sequence_nr is not None:  # a leaf has none
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
        edges = node.edges


class Exp(Function):
    """y = e^x;   dy/dx = e^x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.exp(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g * exp(x)


class Add(Function):
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return g * b, g * a


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
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b

    def backward(ctx, g):
        a, b = ctx.saved
        return g / b, -g * a / (b * b)


class Pow(Function):
    """y = x^n with a number n;   dy/dx = n x^(n-1)."""

    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    def backward(ctx, g):
        (x,) = ctx.saved
        if ctx.n == 0:
            return 0 * g  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return ctx.n * x ** (ctx.n - 1) * g


class Sin(Function):
    """y = sin x;   dy/dx = cos x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.sin(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g * cos(x)


class Cos(Function):
    """y = cos x;   dy/dx = -sin x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.cos(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return -g * sin(x)


class Tanh(Function):
    """y = tanh x;   dy/dx = 1 - y^2."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.tanh(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g * (1 - tanh(x) ** 2)


class Log(Function):
    """y = log x (base e);   dy/dx = 1 / x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.log(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g / x


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
    import tracemalloc

    class AddThatKeeps(Add):
        """As until now: it keeps both inputs."""

        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a + b

    def megabytes(operation):
        """The memory that a sum of a hundred terms holds before its backward."""
        tracemalloc.start()
        total = tensor(np.zeros(125_000), requires_grad=True)  # one megabyte
        for _ in range(100):
            total = operation.apply(total, 1.0)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return round(held / 10**6)

    print("inputs kept:", megabytes(AddThatKeeps), "MB")  # -> inputs kept: 101 MB
    print("only what is needed:", megabytes(Add), "MB")  # -> only what is needed: 2 MB

    x, w = tensor(0.5, requires_grad=True), tensor(2.0, requires_grad=True)
    print("Add:", (x + w).grad_fn.saved, " Mul:", (x * w).grad_fn.saved)
    # -> Add: []  Mul: [tensor(0.5, requires_grad=True), tensor(2., requires_grad=True)]
    print("a number:", (x * 3).grad_fn.saved)  # -> a number: [tensor(0.5, requires_grad=True), 3]

    (x * x.detach()).backward(create_graph=True)
    print("x times a constant:", x.grad, x.grad.requires_grad)
    # -> x times a constant: tensor(0.5) False

    def derivatives(f):
        """First and second derivative of f at 0.5."""
        x = tensor(0.5, requires_grad=True)
        f(x).backward(create_graph=True)
        first, x.grad = x.grad, None
        first.backward()
        return f"{first.item():.3f} {x.grad.item():.3f}"

    print("x * x: ", derivatives(lambda x: x * x))  # -> x * x:  1.000 2.000
    print("1 / x: ", derivatives(lambda x: 1 / x))  # -> 1 / x:  -4.000 16.000
    print("others:", derivatives(lambda x: exp(x) + x**0 + x**3 + sin(x) + tanh(x) + log(x)))
    # -> others: 6.063 -0.558
