"""Step 44: Signals vanish or explode

The demo has 20 layers, each with a relu, and the spread of the numbers behind each. A layer
multiplies it by some factor f, 20 layers by f^20. With weights of spread 0.01 nothing is left of
the input, with 0.5 it grows to nine digits. In backward the gradient passes through the same
weights, so it vanishes or explodes as well. Linear's own start, right for one layer, has f^2 = 1/6
(by the formula below), f = 0.4.

Which start has f = 1? One output is the sum of n products w x. If the weights have variance v and
mean 0, and q is the mean of x^2, the variance of the output is n v q. The relu then lets only the
positive half through, and half of the squares:

    mean of relu(y)^2 = n v q / 2        so it stays q for v = 2 / n

This is kaiming_normal_, after Kaiming He (2015). n is the product of all sizes behind the first
(here in_features): so many numbers enter one output. At rates of 0.003 and 0.01 only this network
learns.

normal_ and kaiming_normal_ write into the parameter's array, so that the module keeps the same
object, and no call is recorded. In PyTorch, too, a _ at the end means: in place.

The trap: a factor of 0.9 looks harmless. But 0.9^20 is 0.12, and 0.9^100 is 0.00003.

New: normal_, kaiming_normal_.
Try: 0.9 times the spread of kaiming_normal_, and 100 layers. What is the spread at the end?

This is the end of stage 7. You can write a network as a tree of parts, which finds its parameters,
names them, and starts with signals of the right size. PyTorch's Module also has hooks and lists of
modules, and torch.nn has 160 ready parts."""

import contextlib
import copy
import heapq
import itertools
import math

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
        np.add.at(y, key, x)
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

    def __call__(self, *args):
        return self.forward(*args)

    def named_children(self):
        """(name, part) for each attribute that is a Module."""
        for name, member in vars(self).items():
            if isinstance(member, Module):
                yield name, member

    def named_parameters(self):
        """(path, parameter): ("0.weight", ...), ("0.bias", ...)."""
        for name, member in vars(self).items():
            if isinstance(member, Parameter):
                yield name, member
        for name, child in self.named_children():
            for path, parameter in child.named_parameters():
                yield f"{name}.{path}", parameter

    def parameters(self):
        """All parameters, however deep."""
        for _, parameter in self.named_parameters():
            yield parameter

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


if __name__ == "__main__":
    manual_seed(0)
    x = randn(64, 64)
    t = (x @ randn(64, 4)).argmax(1)  # four classes

    starts = {
        "spread 0.01": lambda weight: normal_(weight, 0, 0.01),
        "Linear's own": lambda weight: weight,
        "spread 0.5": lambda weight: normal_(weight, 0, 0.5),
        "kaiming": kaiming_normal_,
    }

    def deep(start):
        """20 layers of 64 units, each with a relu, and a last one that gives four scores."""
        manual_seed(0)
        layers = []
        for _ in range(20):
            layers += [Linear(64, 64, bias=False), ReLU()]  # a bias would hide what is lost
            start(layers[-2].weight)
        return Sequential(*layers, Linear(64, 4))

    def spread(tensor):
        return tensor.detach().numpy().astype(float).std()  # its squares would be 0 in float32

    # Behind 1, 5, 10 and 20 layers, and the spread of the gradient of the first weight.
    for name, start in starts.items():
        net, y, spreads = deep(start), x, []
        for _, module in net.named_children():
            y = module(y)
            spreads.append(spread(y))
        cross_entropy(y, t).backward()
        behind = " ".join(f"{spreads[2 * i - 1]:.0e}" for i in (1, 5, 10, 20))
        print(f"{name:12} {behind}   gradient {spread(net[0].weight.grad):.0e}")
        # -> spread 0.01  5e-02 5e-07 3e-13 5e-26   gradient 1e-26
        # -> Linear's own 3e-01 6e-03 6e-05 4e-09   gradient 2e-10
        # -> spread 0.5   2e+00 2e+02 3e+04 5e+08   gradient 4e+06
        # -> kaiming      8e-01 9e-01 1e+00 5e-01   gradient 6e-03

    def train(start, rate):
        """The loss after 100 steps."""
        net = deep(start)
        for _ in range(100):
            loss = cross_entropy(net(x), t)
            loss.backward()
            with no_grad():
                for p in net.parameters():
                    p -= rate * p.grad
                    p.grad = None
        return loss.item()

    # Which of them learns? A network that knows nothing has a loss of log(4) = 1.39.
    with np.errstate(all="ignore"):  # what explodes becomes inf, and then nan
        for name, start in starts.items():
            losses = " ".join(f"{train(start, rate):5.2f}" for rate in (0.003, 0.01))
            print(f"{name:12} {losses}")
            # -> spread 0.01   1.39  1.39
            # -> Linear's own  1.39  1.38
            # -> spread 0.5     nan   nan
            # -> kaiming       ...

    # The numbers themselves: 3 with a spread of 0.5; with 50 inputs a spread of sqrt(2 / 50) = 0.2.
    weight = Parameter(zeros(400, 50))
    same = normal_(weight, 3, 0.5)
    print(f"{weight.detach().numpy().mean():.3f} {spread(weight):.3f}", same is weight)
    # -> 3.000 0.501 True
    kaiming_normal_(weight)
    print(f"{spread(weight):.4f}")  # -> 0.2007
