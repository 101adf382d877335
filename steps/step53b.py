"""Step 53b: A network that reads moved digits

Two networks learn from digits that are moved at random by up to two pixels: the fully connected
one of step 49, and the convolutions with batch norm. Each has the rate and the number of epochs
that suit it: 30 at 0.003, and 10 at 0.005. What do they make of digits of other writers?

    moved by                      0       1       2 pixels
    rows of pixels              82 %    83 %    81 %        17,226 numbers
    convolutions                94 %    94 %    89 %         6,186 numbers

Compare with step 51, where the two were nearly equal. There each stroke had its place, and a
network could learn by heart what stands there. Now the same stroke comes at 25 places. The fully
connected network has to learn it 25 times, and its 128 hidden units are not enough for it: it even
gets worse on the digits that are not moved (92 % before). A filter learns it once. That is what
convolutions are for.

The trap: what is not measured is not known. Step 53a's network learned with moves by one pixel, and
reads 57 % of the digits moved by two. A network answers with the same confidence in a
place where it has never been.

At the end the demo shows digits that are read wrong.

Changed: nothing in the framework. New: a demo with both networks on moved digits.
Try: Moved(train, 3). Parts of digits leave the image: what do both networks read then?
"""

import contextlib
import copy
import heapq
import itertools
import json
import math
import pickle

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.generic)):
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
        # An array object of its own, on the same memory: roles_of tells saved values apart by it.
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

    def __bool__(self):
        if self.array.size != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.array.item())

    def __float__(self):
        return float(self.array.item())

    def __repr__(self):
        indent = " " * len("tensor(")  # aligns the rows of a matrix
        text = np.array2string(self.array, separator=", ", prefix=indent)
        if self._edge is not None:
            return f"tensor({text}, grad_fn=<{type(self.grad_fn).__name__}>)"
        return f"tensor({text}{', requires_grad=True' if self._requires_grad else ''})"


def tensor_method(*names):
    """Attach a function to Tensor as a method, under each of these names."""

    def attach(function):
        for name in names:
            if name in Tensor.__dict__:
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


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


def sum_to(array, shape):
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    # The dimensions that `shape` lacks in front, and those that have size 1 in it.
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1))
    return array.sum(axis=axes).reshape(shape)


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph.

    forward(ctx, *arrays) computes on arrays. backward(ctx, g) is one formula for plain arrays and,
    where the gradient is to be differentiated again, for Tensors: it uses operators, methods that
    both have, functions of `ctx.xp`, which is numpy or the class Tensor, and `ctx.call`.
    """

    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back

    xp = np
    saved = ()
    input_shapes = None  # of an elementwise call: the shape of each input, None for a number

    @classmethod
    def apply(cls, *args):
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        ctx = cls()
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        arrays = [x.array if isinstance(x, Tensor) else x for x in args]
        result = ctx.forward(*arrays)
        out = Tensor(result)
        needed = any(edge is not None for edge in ctx.edges)
        if needed and GradMode.enabled and cls.differentiable:
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of(arrays, result)
            if cls.elementwise:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]
            out._requires_grad, out._edge = True, (ctx, 0)
        return out

    def save_for_backward(ctx, *values):
        """Keep arrays for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def roles_of(ctx, inputs, output):
        """For each saved value: i if it is input i, ~0 if it is the output, None for a constant.

        All of them are alive now, so that `is` tells them apart.
        """
        roles = []
        for value in ctx.saved:
            role = next((i for i, x in enumerate(inputs) if x is value), None)
            roles.append(~0 if role is None and value is output else role)
        return roles

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if grad is not None and shape is not None and grad.shape != shape:
                grad = ctx.call(SumTo, grad, shape)
            sums.append(grad)
        return sums

    def call(ctx, function, x, *parameters):
        """Another operation inside backward: recorded for a Tensor, only computed for an array."""
        if isinstance(x, Tensor):
            return function.apply(x, *parameters)
        return function().forward(x, *parameters)

    def forward(ctx, *arrays):
        """Compute an array from the arrays, and keep what backward needs."""
        raise NotImplementedError

    def backward(ctx, g):
        """Compute a gradient for each input from that of the output: one, or a tuple."""
        raise NotImplementedError

    def gradients(ctx, g):
        """What backward returns on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(g)

    def saved_tensor(ctx, number):
        """Saved value `number` as the tensor that it was. It is wrapped anew: had the call saved
        its output tensor, the two would keep each other alive."""
        value, role = ctx.saved[number], ctx.saves[number]
        if not hasattr(value, "dtype"):
            return value
        out = Tensor(value)
        edge = None if role is None else ctx.edges[role] if role >= 0 else (ctx, ~role)
        if edge is not None:
            out._requires_grad, out._edge = True, edge
        return out


def backward_pass(edges, grads, as_tensors):
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
        grad = arrived.pop(node)
        grads = node.gradients(grad) if as_tensors else node.backward(grad)
        if not isinstance(grads, tuple):
            grads = (grads,)
        if node.input_shapes is not None:
            grads = node.sum_back(grads)
        edges = node.edges


def accumulate(leaf, grad):
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf.grad = grad + (0 if leaf.grad is None else leaf.grad)  # + 0: a copy, recorded
    elif leaf.grad is None:
        leaf.grad = Tensor(np.array(grad))  # a copy: Add hands the same array to both inputs
    else:
        # Not in place: a graph may have saved the array of leaf.grad.
        leaf.grad = Tensor(leaf.grad.array + grad)


@tensor_method("backward")
def tensor_backward(self, gradient=None, retain_graph=None, create_graph=False):
    """Add to the grad of each leaf behind this tensor the derivative with respect to it.

    gradient is that of some number with respect to this tensor; a single element may leave it out,
    which means 1. With create_graph the gradients are recorded, and can be differentiated.
    retain_graph is there for programs that PyTorch runs too: this graph is kept in any case.
    """
    if not self.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if gradient is None:
        if self.array.size != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        gradient = Tensor(np.ones_like(self.array))
    start = gradient if create_graph else gradient.array
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([edge_of(self)], [start], create_graph).items():
            accumulate(leaf, grad)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x):
        y = np.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * y


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a, b):
        return a + b

    def backward(ctx, g):
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return g * b, g * a


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x):
        return -x

    def backward(ctx, g):
        return -g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a, b):
        return a - b

    def backward(ctx, g):
        return g, -g


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2."""

    elementwise = True

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
        return g * ctx.xp.cos(x)


class Cos(Function):
    """y = cos x;   dy/dx = -sin x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.cos(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return -g * ctx.xp.sin(x)


class Tanh(Function):
    """y = tanh x;   dy/dx = 1 - y^2."""

    def forward(ctx, x):
        y = np.tanh(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * (1 - y * y)


class Log(Function):
    """y = log x (base e);   dy/dx = 1 / x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.log(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g / x


@tensor_method("exp")
def exp(x):
    return Exp.apply(x)


@tensor_method("__add__", "__radd__")
def add(a, b):
    return Add.apply(a, b)


@tensor_method("__mul__", "__rmul__")
def mul(a, b):
    return Mul.apply(a, b)


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__sub__")
def sub(a, b):
    return Sub.apply(a, b)


@tensor_method("__rsub__")
def rsub(self, other):
    return sub(other, self)


@tensor_method("__truediv__")
def div(a, b):
    return Div.apply(a, b)


@tensor_method("__rtruediv__")
def rdiv(self, other):
    return div(other, self)


@tensor_method("__pow__")
def pow(x, n):
    return Pow.apply(x, n)


@tensor_method("sin")
def sin(x):
    return Sin.apply(x)


@tensor_method("cos")
def cos(x):
    return Cos.apply(x)


@tensor_method("tanh")
def tanh(x):
    return Tanh.apply(x)


@tensor_method("log")
def log(x):
    return Log.apply(x)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: each element gets the gradient of the sum."""

    def forward(ctx, x, dim, keepdim):
        total = x.sum(axis=dim, keepdims=True)
        ctx.shape, ctx.kept = x.shape, total.shape
        return total if keepdim else total.squeeze(dim)

    def backward(ctx, g):
        return ctx.call(Expand, g.reshape(ctx.kept), ctx.shape)


@tensor_method("sum")
def sum(x, dim=None, keepdim=False):
    """The sum along dim (an int or several), or of all elements. keepdim keeps dim as size 1."""
    return Sum.apply(x, dim, keepdim)


@tensor_method("mean")
def mean(x, dim=None, keepdim=False):
    """The mean along dim (an int or several), or of all elements."""
    total = sum(x, dim, keepdim)
    return total / (x.numel() // total.numel())


class Expand(Function):
    """y = x repeated to `shape`, without a copy. Backward sums what was repeated."""

    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return np.broadcast_to(x, shape)

    def backward(ctx, g):
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g):
        return ctx.call(Expand, g, ctx.shape)


class MatMul(Function):
    """C = A B;   dL/dA = G B^T,   dL/dB = A^T G, where G = dL/dC."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    def backward(ctx, g):
        a, b = ctx.saved
        return g @ b.T, a.T @ g


@tensor_method("matmul", "__matmul__")
def matmul(a, b):
    """The product of two matrices, [n, m] @ [m, p] = [n, p]."""
    return MatMul.apply(a, b)


class Reshape(Function):
    """y = the elements of x, in their order, in another shape. The gradient gets the old shape."""

    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return x.reshape(shape)

    def backward(ctx, g):
        return g.reshape(ctx.shape)


@tensor_method("reshape")
def reshape(x, *sizes):
    """The elements of x in another shape: reshape(2, 3) or reshape((2, 3)). One size may be -1."""
    return Reshape.apply(x, sizes[0] if isinstance(sizes[0], tuple) else sizes)


class Transpose(Function):
    """y = x with two dimensions exchanged. The gradient exchanges them back."""

    def forward(ctx, x, dim0, dim1):
        ctx.dims = dim0, dim1
        return x.swapaxes(dim0, dim1)

    def backward(ctx, g):
        return g.swapaxes(*ctx.dims)


@tensor_method("transpose", "swapaxes")
def transpose(x, dim0, dim1):
    return Transpose.apply(x, dim0, dim1)


@tensor_method("T")
@property
def matrix_transpose(self):
    """The transpose of a matrix."""
    return Transpose.apply(self, 0, 1)


class Compare(Function):
    """Whether a relation holds, for each pair of elements. The answer has no gradient."""

    differentiable = False

    def forward(ctx, holds, a, b):
        return holds(a, b)


def relation(holds, *names):
    """The operation that asks whether `holds` is true of a and b, attached under these names."""

    @tensor_method(*names)
    def operation(a, b):
        return Compare.apply(holds, a, b)

    return operation


eq = relation(np.equal, "eq", "__eq__")
ne = relation(np.not_equal, "ne", "__ne__")
lt = relation(np.less, "lt", "__lt__")
le = relation(np.less_equal, "le", "__le__")
gt = relation(np.greater, "gt", "__gt__")
ge = relation(np.greater_equal, "ge", "__ge__")


class Where(Function):
    """y = a where the condition holds, else b. Each gets the gradient of its own elements."""

    elementwise = True

    def forward(ctx, condition, a, b):
        ctx.save_for_backward(condition)
        return np.where(condition, a, b)

    def backward(ctx, g):
        (condition,) = ctx.saved
        return None, g * condition, g * (condition == 0)


def where(condition, a, b):
    """The elements of a where the condition holds, else those of b."""
    return Where.apply(condition, a, b)


class Relu(Function):
    """y = x where x > 0, else 0;   dy/dx = 1 where x > 0, else 0, also at x = 0."""

    def forward(ctx, x):
        y = np.maximum(x, 0)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * (y > 0)


@tensor_method("relu")
def relu(x):
    return Relu.apply(x)


class Amax(Function):
    """y = the largest x_i;   dy/dx_i = 1 where x_i = y, divided by the number of such x_i."""

    def forward(ctx, x, dim, keepdim):
        y = x.max(axis=dim, keepdims=True)
        found = x == y
        share = found / found.sum(axis=dim, keepdims=True, dtype=x.dtype)
        ctx.save_for_backward(share)
        ctx.kept = y.shape
        return y if keepdim else y.squeeze(dim)

    def backward(ctx, g):
        (share,) = ctx.saved
        return g.reshape(ctx.kept) * share


@tensor_method("amax")
def amax(x, dim=None, keepdim=False):
    """The largest elements along dim, or of all. Equal ones share the gradient."""
    return Amax.apply(x, dim, keepdim)


class ArgMax(Function):
    """The index of the first largest x_i along dim, or among all elements for None."""

    differentiable = False

    def forward(ctx, x, dim):
        return x.argmax(axis=dim)


@tensor_method("argmax")
def argmax(x, dim=None):
    return ArgMax.apply(x, dim)


@tensor_method("log_softmax")
def log_softmax(x, dim):
    """The logarithms of the probabilities softmax(x) along dim."""
    z = x - amax(x, dim, keepdim=True).detach()  # the largest becomes 0: exp cannot overflow
    return z - z.exp().sum(dim, keepdim=True).log()


class Index(Function):
    """y = x[key]. An element that is chosen twice gets both gradients: they are added up."""

    def forward(ctx, x, key):
        ctx.shape, ctx.key = x.shape, key
        return x[key]

    def backward(ctx, g):
        return ctx.call(AddIndex, g, ctx.shape, ctx.key)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[key]: the reverse of Index."""

    def forward(ctx, x, shape, key):
        ctx.key = key
        y = np.zeros(shape, x.dtype)
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, (np.ndarray, list)) for part in parts):
            np.add.at(y, key, x)  # an element may be chosen twice
        else:
            y[key] = x
        return y

    def backward(ctx, g):
        return ctx.call(Index, g, ctx.key)


@tensor_method("__getitem__")
def getitem(self, key):
    """The elements at key: numbers, slices, arrays or Tensors of numbers, or a tuple of these."""
    if isinstance(key, tuple):
        key = tuple([part.array if isinstance(part, Tensor) else part for part in key])
    return Index.apply(self, key)


class Generator:
    """A stream of random numbers; the same seed gives the same stream again."""

    def __init__(self):
        self.manual_seed(2**31 - 1)  # for programs that set none

    def manual_seed(self, seed):
        """Start the stream of this seed."""
        self.rng = np.random.default_rng(seed)
        return self


default_generator = Generator()


def manual_seed(seed):
    """Start the stream of this seed in the default generator, which is returned."""
    return default_generator.manual_seed(seed)


def rand(*size, generator=default_generator, requires_grad=False):
    """rand(2, 3): a tensor of this shape, with numbers evenly from [0, 1)."""
    return Tensor(generator.rng.random(size, np.float32), requires_grad)


def randn(*size, generator=default_generator, requires_grad=False):
    """randn(2, 3): a tensor of this shape, with normal numbers."""
    n = math.prod(size)
    u, v = generator.rng.random((2, (n + 1) // 2), np.float32)
    distance, direction = np.sqrt(-2 * np.log1p(-u)), 2 * math.pi * v
    pairs = distance * np.stack([np.cos(direction), np.sin(direction)])
    return Tensor(pairs.reshape(-1)[:n].reshape(size), requires_grad)


def randperm(n, generator=default_generator):
    """The integers 0 to n - 1 in random order."""
    return Tensor(generator.rng.permutation(n))


def in_place(operation, name):
    """Attach the method that writes the result of operation(self, other) into self's memory."""

    @tensor_method(name)
    def write(self, other):
        if GradMode.enabled and self.requires_grad and self.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        out = operation(self, other)
        if out.requires_grad:  # it has a history: a tensor of its own
            return out
        np.copyto(self.array, out.array)
        return self


in_place(add, "__iadd__")
in_place(sub, "__isub__")
in_place(mul, "__imul__")
in_place(div, "__itruediv__")


class NllLoss(Function):
    """l = log(sum of exp(x_i)) - x_t, the mean over all rows;   dl/dx_i = (p_i - [i = t]) / n."""

    def forward(ctx, x, target):
        m = x.max(axis=1, keepdims=True)
        right = np.arange(x.shape[1]) == target.reshape(-1, 1)  # one True in each row
        ctx.save_for_backward(x, m, right)
        z = x - m
        return (np.log(np.exp(z).sum(axis=1)) - z[right]).mean()

    def backward(ctx, g):
        x, m, right = ctx.saved
        e = ctx.xp.exp(x - m)
        p = e / ctx.call(Sum, e, 1, True)
        return (p - right) * (g / len(right))


def cross_entropy(x, target):
    """The mean over the rows of x [n, classes] of -log p(target); target [n] are integers."""
    return NllLoss.apply(x, target)


# ---- Stage 7: networks --------------------------------------------------------------------------


def zeros(*size):
    """zeros(2, 3): a tensor of this shape, all 0."""
    return Tensor(np.zeros(size, np.float32))


class Parameter(Tensor):
    """A tensor that is to be learned: Parameter(tensor) is a leaf on the same memory."""

    def __init__(self, data):
        super().__init__(data.array, requires_grad=True)


class Module:
    """A part of a network. A subclass makes its parameters and parts as attributes in __init__,
    after super().__init__(), and says in `forward` what it computes."""

    def __init__(self):
        self.training = True
        self._buffers = []  # the names of tensors that belong to the state and are not learned

    def __call__(self, *args):
        return self.forward(*args)

    def register_buffer(self, name, tensor):
        """Make `tensor` an attribute that belongs to the state, but is not learned."""
        setattr(self, name, tensor)
        self._buffers.append(name)

    def named_children(self):
        """(name, part) for each attribute that is a Module."""
        for name, member in vars(self).items():
            if isinstance(member, Module):
                yield name, member

    def named_members(self):
        """(path, tensor) of all parameters and buffers."""
        for name, member in vars(self).items():
            if isinstance(member, Parameter):
                yield name, member
        for name in self._buffers:
            yield name, getattr(self, name)
        for name, child in self.named_children():
            for path, member in child.named_members():
                yield f"{name}.{path}", member

    def named_parameters(self):
        """(path, parameter): ("0.weight", ...), ("0.bias", ...)."""
        for path, member in self.named_members():
            if isinstance(member, Parameter):
                yield path, member

    def parameters(self):
        """All parameters, however deep."""
        for _, parameter in self.named_parameters():
            yield parameter

    def train(self, mode=True):
        """Tell this module and its parts whether they are in training."""
        self.training = mode
        for _, child in self.named_children():
            child.train(mode)
        return self

    def eval(self):
        """The network is used from now on, not trained."""
        return self.train(False)

    def state_dict(self):
        """All parameters and buffers by their paths, outside of the graph. They share the memory:
        copy.deepcopy what has to stay as it is."""
        return {path: member.detach() for path, member in self.named_members()}

    def load_state_dict(self, state_dict):
        """Take over the values of a state_dict. Names and shapes have to be the same."""
        members = dict(self.named_members())
        if members.keys() != state_dict.keys():
            raise RuntimeError(f"other names: {sorted(members.keys() ^ state_dict.keys())}")
        for path, member in members.items():
            value = state_dict[path]
            if value.shape != member.shape:
                raise RuntimeError(f"size mismatch for {path}: {value.shape}, not {member.shape}")
            np.copyto(member.array, value.array)

    def extra_repr(self):
        """What a module shows of itself between the brackets."""
        return ""

    def __repr__(self):
        lines = [f"({name}): {child!r}" for name, child in self.named_children()]
        text = "".join("\n" + line for line in lines).replace("\n", "\n  ") + "\n" * bool(lines)
        return f"{type(self).__name__}({self.extra_repr()}{text})"


def uniform_parameter(bound, *size):
    """A Parameter with numbers evenly from [-bound, bound)."""
    return Parameter(rand(*size) * (2 * bound) - bound)


class Linear(Module):
    """y = x W^T + b, with weight [out_features, in_features] and bias [out_features]."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        bound = 1 / in_features**0.5
        self.weight = uniform_parameter(bound, out_features, in_features)
        self.bias = uniform_parameter(bound, out_features) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        n, m = self.weight.shape
        return f"in_features={m}, out_features={n}, bias={self.bias is not None}"


class ReLU(Module):
    """relu as a module."""

    def forward(self, x):
        return x.relu()


class Sequential(Module):
    """Modules in a row: each gets what the one before it gives. net[0] is the first of them."""

    def __init__(self, *modules):
        super().__init__()
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def __getitem__(self, number):
        return getattr(self, str(number))

    def forward(self, x):
        for _, module in self.named_children():
            x = module(x)
        return x


def mse_loss(x, target):
    """The mean of (x - target)^2."""
    return ((x - target) ** 2).mean()


class Sigmoid(Function):
    """y = 1 / (1 + e^-x);   dy/dx = y (1 - y)."""

    def forward(ctx, x):
        y = np.exp(-np.logaddexp(0, -x))  # logaddexp(a, b) = log(e^a + e^b) without overflow
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * y * (1 - y)


@tensor_method("sigmoid")
def sigmoid(x):
    return Sigmoid.apply(x)


class Softplus(Function):
    """y = log(1 + e^x);   dy/dx = sigmoid(x)."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.logaddexp(0, x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g * ctx.call(Sigmoid, x)


def softplus(x):
    """log(1 + e^x): a smooth relu, and -log(1 - p) for p = sigmoid(x)."""
    return Softplus.apply(x)


def binary_cross_entropy_with_logits(x, target):
    """The mean of -log p where target is 1, and of -log(1 - p) where it is 0; p = sigmoid(x)."""
    return (softplus(x) - x * target).mean()


def normal_(tensor, mean=0, std=1):
    """Fill a parameter with normal numbers."""
    np.copyto(tensor.array, (randn(*tensor.shape) * std + mean).array)
    return tensor


def kaiming_normal_(tensor):
    """Fill a weight [out, in, ...] with normal numbers of variance 2 / in: with a relu behind each
    layer the signal keeps its size."""
    return normal_(tensor, 0, (2 / np.prod(tensor.shape[1:]).item()) ** 0.5)


# ---- Stage 8: training --------------------------------------------------------------------------


class Optimizer:
    """Moves parameters. A subclass says in `update` how one of them moves.

    state: for each parameter a dict with what the subclass wants to remember.
    """

    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
        self.state = [{} for _ in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        """Move each parameter that has a gradient."""
        for p, state in zip(self.params, self.state, strict=True):
            if p.grad is not None:
                self.update(p, p.grad.array, state)

    def state_dict(self):
        """All that is needed to go on: the rate and the state of each parameter."""
        return {"lr": self.lr, "state": copy.deepcopy(self.state)}

    def load_state_dict(self, state_dict):
        self.lr, self.state = state_dict["lr"], copy.deepcopy(state_dict["state"])


class SGD(Optimizer):
    """v = momentum v + g;   p = p - lr v."""

    def __init__(self, params, lr=1e-3, momentum=0):
        super().__init__(params, lr)
        self.momentum = momentum

    def update(self, p, g, state):
        if self.momentum:
            g = state["v"] = self.momentum * state.get("v", 0) + g
        p.array -= self.lr * g


class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) g^2;   p = p - lr g / (sqrt(v) + eps)."""

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8):
        super().__init__(params, lr)
        self.alpha, self.eps = alpha, eps

    def update(self, p, g, state):
        v = state["v"] = self.alpha * state.get("v", 0) + (1 - self.alpha) * g * g
        p.array -= self.lr * g / (np.sqrt(v) + self.eps)


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2;
    p = p - lr m' / (sqrt(v') + eps) with m' = m / (1 - beta1^step), v' = v / (1 - beta2^step)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, lr)
        self.betas, self.eps = betas, eps

    def update(self, p, g, state):
        beta1, beta2 = self.betas
        step = state["step"] = state.get("step", 0) + 1
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        root = np.sqrt(v / (1 - beta2**step))
        p.array -= self.lr / (1 - beta1**step) * m / (root + self.eps)


class AdamW(Adam):
    """Adam, and p = p - lr weight_decay p, apart from the gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, lr, betas, eps)
        self.weight_decay = weight_decay

    def update(self, p, g, state):
        p.array *= 1 - self.lr * self.weight_decay
        super().update(p, g, state)


def clip_grad_norm_(parameters, max_norm):
    """Shorten the gradient of all parameters together to max_norm; returns its length before."""
    parameters = [p for p in parameters if p.grad is not None]
    norm = np.sqrt(np.sum([(p.grad.array**2).sum() for p in parameters]))
    factor = min(1, max_norm / (norm.item() + 1e-6))
    for p in parameters:
        p.grad.array *= factor
    return Tensor(norm)


class LambdaLR:
    """After n calls of step(), the rate is the first one times lr_lambda(n)."""

    def __init__(self, optimizer, lr_lambda):
        self.optimizer, self.lr_lambda = optimizer, lr_lambda
        self.base_lr, self.last_epoch = optimizer.lr, -1
        self.step()

    def step(self):
        self.last_epoch += 1
        self.optimizer.lr = self.base_lr * self.lr_lambda(self.last_epoch)

    def get_last_lr(self):
        return [self.optimizer.lr]

    def state_dict(self):
        return {"base_lr": self.base_lr, "last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict):
        self.base_lr, self.last_epoch = state_dict["base_lr"], state_dict["last_epoch"]


def warmup_cosine(warmup, steps):
    """A factor for each step: up to 1 in a line, then down to 0 along half a cosine."""

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 + 0.5 * math.cos(math.pi * min(1, (step - warmup) / (steps - warmup)))

    return factor


class Dataset:
    """Items by their number. A subclass says how many (__len__) and which (__getitem__)."""

    def __getitem__(self, index):
        raise NotImplementedError


class TensorDataset(Dataset):
    """Item i is the tuple of row i of each tensor."""

    def __init__(self, *tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        return tuple([tensor[index] for tensor in self.tensors])


class Subset(Dataset):
    """Some items of a data set: those with the numbers `indices`."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


def random_split(dataset, lengths):
    """The data set divided at random into parts of these lengths."""
    order = randperm(len(dataset)).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def default_collate(batch):
    """Items, each a tuple of tensors or numbers, to a list of tensors with one row per item."""
    columns = zip(*batch, strict=True)
    return [Tensor(np.stack([getattr(x, "array", x) for x in column])) for column in columns]


class DataLoader:
    """Batches of a data set: for x, t in DataLoader(dataset, 32, shuffle=True)."""

    def __init__(self, dataset, batch_size=1, shuffle=None, drop_last=False):
        self.dataset, self.batch_size = dataset, batch_size
        self.shuffle, self.drop_last = shuffle, drop_last

    def __len__(self):
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        # As in PyTorch, each pass draws a seed for workers (there are none here) and one for its
        # order: how many numbers a pass takes from the stream does not depend on the data.
        default_generator.rng.integers(1 << 62)
        order = np.arange(len(self.dataset))
        if self.shuffle:
            seed = default_generator.rng.integers(1 << 62)
            order = randperm(len(order), generator=Generator().manual_seed(seed)).array
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            numbers = order[start : start + self.batch_size].tolist()
            yield default_collate([self.dataset[i] for i in numbers])


def dropout(x, p=0.5, training=True):
    """In training each element is 0 with probability p, and the others grow by 1 / (1 - p)."""
    if not training or p == 0:
        return x
    return x * (rand(*x.shape) >= p) * (1 / (1 - p))


class Dropout(Module):
    """dropout, in training only."""

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def forward(self, x):
        return dropout(x, self.p, self.training)


def save(obj, f):
    """Write tensors and numbers, in dicts and lists, to the file f."""
    with open(f, "wb") as file:
        pickle.dump(obj, file)


def load(f):
    """Read what save has written. Only files that you trust: pickle can run any program."""
    with open(f, "rb") as file:
        return pickle.load(file)


def get_rng_state():
    """Where the default generator is in its stream, as a tensor of bytes."""
    text = json.dumps(default_generator.rng.bit_generator.state)
    return Tensor(np.array(list(text.encode()), np.uint8))


def set_rng_state(new_state):
    """Go on from where get_rng_state was called."""
    default_generator.rng.bit_generator.state = json.loads(new_state.array.tobytes())


def accuracy(net, loader):
    """The share of right answers of a classifier, in evaluation."""
    net.eval()
    right = total = 0
    with no_grad():
        for x, t in loader:
            right += (net(x).argmax(1) == t).sum().item()
            total += len(t)
    net.train()
    return right / total


def fit(net, loader, optimizer, schedule):
    """One epoch of training with cross entropy; returns the mean of the losses."""
    total = 0
    for x, t in loader:
        loss = cross_entropy(net(x), t)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
    return total / len(loader)


# ---- Stage 9: vision ----------------------------------------------------------------------------


def pad(x, pad):
    """Zeros around the last two dimensions: pad = (left, right, top, bottom)."""
    left, right, top, bottom = pad
    h, w = x.shape[-2:]
    shape = (*x.shape[:-2], h + top + bottom, w + left + right)
    return AddIndex.apply(x, shape, (..., slice(top, top + h), slice(left, left + w)))


class Permute(Function):
    """y = x with its dimensions in another order. The gradient gets the old order."""

    def forward(ctx, x, dims):
        ctx.back = tuple(np.argsort([dim % x.ndim for dim in dims]).tolist())
        return x.transpose(dims)

    def backward(ctx, g):
        return ctx.call(Permute, g, ctx.back)


@tensor_method("permute")
def permute(x, *dims):
    """Dimension i of the result is dimension dims[i] of x."""
    return Permute.apply(x, dims[0] if isinstance(dims[0], tuple) else dims)


class Windows(Function):
    """y[..., i, j, u, v] = x[..., i s + u, j s + v]: all windows of size k, a stride of s apart."""

    def forward(ctx, x, k, stride):
        ctx.shape, ctx.k, ctx.stride = x.shape, k, stride
        y = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(-2, -1))
        return y[..., ::stride, ::stride, :, :]

    def backward(ctx, g):
        return ctx.call(AddWindows, g, ctx.shape, ctx.stride)


class AddWindows(Function):
    """y = zeros of a shape, with each window of x added in its place: the reverse of Windows."""

    def forward(ctx, x, shape, stride):
        ctx.k, ctx.stride = x.shape[-1], stride
        y = np.zeros(shape, x.dtype)
        h, w = (n * stride for n in x.shape[-4:-2])
        for u in range(ctx.k):
            for v in range(ctx.k):
                y[..., u : u + h : stride, v : v + w : stride] += x[..., u, v]
        return y

    def backward(ctx, g):
        return ctx.call(Windows, g, ctx.k, ctx.stride)


def windows(x, k, stride=1):
    """All k by k windows of images: [..., h, w] -> [..., rows, columns, k, k], without a copy."""
    return Windows.apply(x, k, stride)


def conv2d(x, weight, bias=None, stride=1, padding=0):
    """Each filter [c, k, k] of weight [o, c, k, k] at all places: [n, c, h, w] -> [n, o, ., .]."""
    o, c, k, _ = weight.shape
    if padding:
        x = pad(x, (padding, padding, padding, padding))
    places = windows(x, k, stride).permute(0, 2, 3, 1, 4, 5)  # [n, i, j, c, u, v]
    n, h, w = places.shape[:3]
    y = places.reshape(n * h * w, c * k * k) @ weight.reshape(o, c * k * k).T
    y = y if bias is None else y + bias
    return y.reshape(n, h, w, o).permute(0, 3, 1, 2)


class Conv2d(Module):
    """conv2d with weight [out_channels, in_channels, k, k] and bias [out_channels]."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0):
        super().__init__()
        self.stride, self.padding = stride, padding
        bound = 1 / (in_channels * kernel_size**2) ** 0.5
        self.weight = uniform_parameter(bound, out_channels, in_channels, kernel_size, kernel_size)
        self.bias = uniform_parameter(bound, out_channels)

    def forward(self, x):
        return conv2d(x, self.weight, self.bias, self.stride, self.padding)


def max_pool2d(x, kernel_size, stride=None):
    """The largest number of each window. Of equal ones, the first gets the gradient."""
    w = windows(x, kernel_size, stride or kernel_size)
    w = w.reshape(*w.shape[:-2], kernel_size**2)
    first = np.arange(kernel_size**2) == w.array.argmax(-1)[..., None]
    return where(Tensor(first), w, 0).sum(-1)


class MaxPool2d(Module):
    """max_pool2d as a module."""

    def __init__(self, kernel_size, stride=None):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride

    def forward(self, x):
        return max_pool2d(x, self.kernel_size, self.stride)


class Flatten(Module):
    """[n, ...] -> [n, all the rest]."""

    def forward(self, x):
        return x.reshape(len(x), -1)


def learn(net, data, epochs, lr):
    """Train net on a data set, in batches of 32. Returns the mean loss of the last epoch."""
    loader = DataLoader(data, 32, shuffle=True)
    optimizer = AdamW(net.parameters(), lr=lr)
    schedule = LambdaLR(optimizer, warmup_cosine(len(loader), epochs * len(loader)))
    for _ in range(epochs):
        loss = fit(net, loader, optimizer, schedule)
    return loss


def ones(*size):
    """ones(2, 3): a tensor of this shape, all 1."""
    return Tensor(np.ones(size, np.float32))


@tensor_method("var")
def var(x, dim=None, *, correction=1, keepdim=False):
    """The variance along dim: the sum of (x - mean)^2 / (n - correction)."""
    squares = (x - mean(x, dim, keepdim=True)) ** 2
    total = sum(squares, dim, keepdim)
    return total / (x.numel() // total.numel() - correction)


class BatchNorm(Module):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, c] or [n, c, h, w].

    mean and var are those of the batch in training, and running averages in evaluation.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = Parameter(ones(num_features))
        self.bias = Parameter(zeros(num_features))
        self.register_buffer("running_mean", zeros(num_features))
        self.register_buffer("running_var", ones(num_features))
        self.register_buffer("num_batches_tracked", tensor(0))

    def forward(self, x):
        dims = (0, *range(2, x.ndim))
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, m = x.mean(dims), self.momentum
            with no_grad():
                self.running_mean += m * (mean - self.running_mean)
                self.running_var += m * (x.var(dims) - self.running_var)
                self.num_batches_tracked += 1
            var = x.var(dims, correction=0)
        shape = (-1, *[1] * (x.ndim - 2))  # [c] -> [c, 1, 1] for images
        scale = self.weight / (var + self.eps) ** 0.5
        return (x - mean.reshape(shape)) * scale.reshape(shape) + self.bias.reshape(shape)


BatchNorm1d = BatchNorm2d = BatchNorm


class Residual(Module):
    """y = x + f(x): the module f only learns what is to be changed."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return x + self.f(x)


def randint(low, high, size, generator=default_generator):
    """A tensor of this shape with integers from low to high - 1."""
    return Tensor(generator.rng.integers(low, high, size))


class Moved(Dataset):
    """The images of a data set, each moved at random by up to `most` pixels, anew in each epoch."""

    def __init__(self, dataset, most):
        self.dataset, self.most = dataset, most

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        image, digit = self.dataset[index]
        h, w = image.shape[-2:]
        i, j = randint(0, 2 * self.most + 1, (2,)).tolist()
        wide = pad(image, (self.most, self.most, self.most, self.most))
        return wide[..., i : i + h, j : j + w], digit


if __name__ == "__main__":
    import pathlib

    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/digits.csv.gz"
    table = np.loadtxt(packed, delimiter=",", dtype=np.int64)
    images = tensor((table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8))
    digits = tensor(table[:, 64])  # the last 397 are by other writers

    def picture(image):
        """Lines of text that show an image."""
        return ["".join(2 * " .:-=+*#%@"[int(9 * pixel)] for pixel in row) for row in image]

    train = TensorDataset(images[:1400], digits[:1400])

    def share_right(net, most):
        """How many digits of other writers are read when moved by `most` pixels, to each side."""
        wide, right = pad(images[1400:], (2, 2, 2, 2)), []
        for i, j in ((0, most), (0, -most), (most, 0), (-most, 0)):
            moved = wide[..., 2 + i : 10 + i, 2 + j : 10 + j]
            right.append(accuracy(net, DataLoader(TensorDataset(moved, digits[1400:]), 397)))
        return np.mean(right)

    def convolutions():
        return Sequential(
            *(Conv2d(1, 16, 3, padding=1), BatchNorm2d(16), ReLU(), MaxPool2d(2)),
            *(Conv2d(16, 32, 3, padding=1), BatchNorm2d(32), ReLU(), MaxPool2d(2)),
            *(Flatten(), Linear(128, 10)),
        )

    def rows_of_pixels():
        return Sequential(
            *(Flatten(), Linear(64, 128), ReLU(), Dropout(0.2)),
            *(Linear(128, 64), ReLU(), Linear(64, 10)),
        )

    for make, epochs, lr in ((rows_of_pixels, 30, 0.003), (convolutions, 10, 0.005)):
        manual_seed(0)
        net = make()
        learn(net, Moved(train, 2), epochs, lr)
        right = ", ".join(f"{share_right(net, most):.2f}" for most in (0, 1, 2))
        print(f"{make.__name__}: moved by 0, 1, 2 pixels {right}")
        # -> rows_of_pixels: moved by 0, 1, 2 pixels 0.82, 0.83, 0.81
        # -> convolutions: moved by 0, 1, 2 pixels 0.94, 0.94, ...

    # What the convolutions get wrong.
    net.eval()
    with no_grad():
        said = net(images[1400:]).argmax(1)
    wrong = [i for i in range(397) if said[i].item() != digits[1400 + i].item()][:4]
    print("   ".join(f"a {digits[1400 + i].item()} read as {said[i].item()}" for i in wrong))
    # -> ...
    for lines in zip(*(picture(images[1400 + i, 0].tolist()) for i in wrong), strict=True):
        print("   ".join(lines))  # -> ...
