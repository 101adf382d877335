"""Step core08: clone: a copy, and its order in memory

A program that wants to change a tensor and keep the old one needs a copy. x + 0 makes one, and
accumulate has used it since step 33. But it is an addition: the graph gets a node Add, -0.0 + 0 is
0.0, and for booleans the result is int64.

x.clone() is a copy and nothing else. It is an operation, Clone, whose gradient passes through as it
is: dy/dx = 1.

A copy also has an order. The strides of an array are the bytes from one element to the next in each
dimension. A transposed table lies in memory column by column, and its strides show that:

    2 x 3 floats, row by row          strides (12, 4)
    its transpose, 3 x 2              strides (4, 12)      the same memory
    clone of the transpose            strides (4, 12)      order "K": kept
    in contiguous_format              strides (8, 4)       order "C": row by row

"K" and "C" are NumPy's names. PyTorch says memory_format=preserve_format and contiguous_format, and
so do clone and cast from here on. To keep the order is the default: memory is then read and written
from one end to the other, which is fastest.

The trap is a stride of 0: an expanded row is one row, shown several times (step 36b). It has no
order that a copy could keep. So it is copied row by row.

(PyTorch: torch.clone. x.detach().clone() is a copy outside of the graph.)

Changed: accumulate, Cast, cast. New: MemoryFormat and its two objects, Clone, clone.
Try: take the test for 0 out of Clone.forward, and look at the strides of "repeated".
"""

import contextlib
import copy
import heapq
import itertools
from typing import Any

import numpy as np

from tinytorch.core.dtype import Defaults, DType, as_dtype, int64, numpy_dtype, result_type


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    array = np.array(data)
    found = Defaults.dtype if array.dtype.kind == "f" else as_dtype(array.dtype)
    return array.astype(numpy_dtype(found if dtype is None else dtype))


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

    # Defaults of what only some tensors change: read here, and not stored in each of them.
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes: (node, output number); None for a leaf
    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None

    def __init__(self, data):
        self.array, self.grad = tensor(data, dtype=Defaults.dtype).array, None

    @property
    def requires_grad(self):
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag):
        if self._edge is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables; use detach()"
            )
        if flag and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.dtype!r}"
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
        # A view, not the array itself: roles_of tells saved values apart by their array objects.
        return wrap(self.array.view())

    @property
    def shape(self):
        return self.array.shape

    @property
    def ndim(self):
        return self.array.ndim

    @property
    def dtype(self):
        return DType.by_numpy[self.array.dtype]

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


def wrap(array: Any) -> Tensor:
    """A tensor around an array, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array, out.grad = array, None
    return out


def tensor_method(*names):
    """Attach a function to Tensor as a method, under each of these names."""

    def attach(function):
        for name in names:
            if name in Tensor.__dict__:
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


def tensor(data: Any, *, dtype: DType | None = None, requires_grad: bool = False) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, or an array.

    Python floats become the default type, ints int64, bools bool; arrays keep theirs.
    """
    out = wrap(host_array(data, None if dtype is None else as_dtype(dtype)))
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any) -> Tensor:
    """`data` itself if it is a tensor, else a tensor with a copy of it."""
    return data if isinstance(data, Tensor) else tensor(data)


def edge_of(tensor):
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


# Numbers the calls. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


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
        # NumPy gives a scalar object where no dimension is left.
        out = wrap(np.asarray(result))
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
        out = wrap(np.asarray(value))
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
        leaf.grad = grad.clone() if leaf.grad is None else leaf.grad + grad
    elif leaf.grad is None:
        leaf.grad = wrap(np.array(grad))  # a copy: Add hands the same array to both inputs
    else:
        # Not in place: a graph may have saved the array of leaf.grad.
        leaf.grad = wrap(np.asarray(leaf.grad.array + grad))


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
        gradient = wrap(np.ones_like(self.array))
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


@tensor_method("exp")
def exp(x):
    return Exp.apply(x)


def number_like(number: Any, dtype: DType) -> Any:
    """A number as an operand for tensors of type `dtype`: an integer wraps around as they do."""
    if isinstance(number, np.generic):
        number = number.item()
    if dtype.name == "bfloat16":  # NumPy would answer with float32 to a Python float
        return numpy_dtype(dtype).type(number)
    if dtype.is_floating_point:
        return float(number)
    return np.asarray(number).astype(numpy_dtype(dtype)).item()


def operands(a: Any, b: Any, floating: bool = False) -> tuple[Any, Any]:
    """Bring two tensors, or a tensor and a number, to the type of their result.

    A number stays a number, which costs no array and, in NumPy 2 as in PyTorch, does not widen a
    float type. With `floating`, integers become the default float type. A NumPy array counts as a
    tensor.

    Raises:
        TypeError: an operand is neither a tensor nor a number.
    """
    if isinstance(a, Tensor) and type(b) is float and a.array.dtype.kind == "f":
        return a, b
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = as_tensor(a), as_tensor(b)
    a = a if isinstance(a, Tensor) or isinstance(b, Tensor) else as_tensor(a)  # add(2, 3)
    dtype = result_type(a, b)
    if floating and not dtype.is_floating_point:
        dtype = Defaults.dtype
    return (
        cast(a, dtype) if isinstance(a, Tensor) else number_like(a, dtype),
        cast(b, dtype) if isinstance(b, Tensor) else number_like(b, dtype),
    )


@tensor_method("__add__", "__radd__")
def add(input: Tensor, other: Any) -> Tensor:
    """input + other, broadcast; the type of the result is `result_type(input, other)`."""
    # Two tensors of one type are by far the most common case.
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Add.apply(input, other)
    return Add.apply(*operands(input, other))


@tensor_method("__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Mul.apply(input, other)
    return Mul.apply(*operands(input, other))


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__sub__")
def sub(input: Any, other: Any) -> Tensor:
    """input - other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Sub.apply(input, other)
    return Sub.apply(*operands(input, other))


@tensor_method("__rsub__")
def rsub(self: Tensor, other: Any) -> Tensor:
    return sub(other, self)


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype and input.array.dtype.kind == "f":
            return Div.apply(input, other)
    return Div.apply(*operands(input, other, floating=True))


@tensor_method("__rtruediv__")
def rdiv(self: Tensor, other: Any) -> Tensor:
    return true_divide(other, self)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: the gradient is repeated."""

    def forward(ctx, x: Any) -> Any:
        ctx.shape = x.shape
        return sum_to(x, ())

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


@tensor_method("sum")
def sum(input: Tensor) -> Tensor:
    """The sum of all elements; integers and booleans are added up as int64."""
    return Sum.apply(input if input.dtype.is_floating_point else cast(input, int64))


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


class MemoryFormat:
    """The order of a tensor's elements in memory: tinytorch.preserve_format or contiguous_format.

    PyTorch has formats for images besides, channels_last, which tinytorch does not.
    """

    def __init__(self, name: str, order: str):
        self.name, self.order = name, order  # the order by NumPy's name

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"


preserve_format = MemoryFormat("preserve_format", "K")
contiguous_format = MemoryFormat("contiguous_format", "C")


class Clone(Function):
    """y = a copy of x with memory of its own;  dy/dx = 1. Order K keeps transposed ones so."""

    def forward(ctx, x: Any, order: str = "K") -> Any:
        return x.copy("C" if 0 in x.strides else order)  # 0 in an expanded one, not in its copy

    def backward(ctx, g: Any) -> Any:
        return g


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x: Any, dtype: Any, order: str = "K") -> Any:
        ctx.dtype = x.dtype
        return x.astype(dtype, "C" if 0 in x.strides else order)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cast, g, ctx.dtype)


def cast(input: Tensor, dtype: DType, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    if memory_format is preserve_format:
        return Cast.apply(input, numpy_dtype(dtype))
    return Cast.apply(input, numpy_dtype(dtype), memory_format.order)


@tensor_method("clone")
def clone(input: Tensor, *, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input, memory_format.order)


if __name__ == "__main__":
    zeros, flag = tensor([-0.0, 0.0]), tensor([True, False])
    print("x + 0:  ", zeros + 0, (flag + 0).dtype)  # -> x + 0:   tensor([0., 0.]) tinytorch.int64
    print("clone():", zeros.clone(), flag.clone().dtype)
    # -> clone(): tensor([-0.,  0.]) tinytorch.bool

    w = tensor([1.5, 2.5], requires_grad=True)
    copied = w.clone()
    print(copied, np.shares_memory(copied.array, w.array))
    # -> tensor([1.5, 2.5], grad_fn=<Clone>) False
    (copied * copied).sum().backward(create_graph=True)
    print("the gradient passes through:", w.grad)
    # -> the gradient passes through: tensor([3., 5.], grad_fn=<Clone>)

    table = wrap(np.ones((2, 3), np.float32))
    turned = wrap(table.array.T)
    print("strides:", table.array.strides, turned.array.strides, turned.clone().array.strides)
    # -> strides: (12, 4) (4, 12) (4, 12)
    print(contiguous_format, turned.clone(memory_format=contiguous_format).array.strides)
    # -> tinytorch.contiguous_format (8, 4)
    float64 = as_dtype("float64")
    print("cast:", cast(turned, float64).array.strides)  # -> cast: (8, 24)
    print("cast:", cast(turned, float64, contiguous_format).array.strides)  # -> cast: (16, 8)
    rows = wrap(np.broadcast_to(np.ones(3, np.float32), (2, 3)))
    print("repeated:", rows.array.strides, rows.clone().array.strides)
    # -> repeated: (0, 4) (12, 4)
