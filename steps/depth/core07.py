"""Step core07: Sums of halves are accumulated in float32

A column of 4,096 ones in float16 adds up to 2048. A float16 has 11 binary digits, so beyond 2048 it
counts only the even numbers: 2048 + 1 lies between 2048 and 2050, and is rounded to 2048. Each
further 1 is lost in the same way. The larger the batch, the more of the gradient of a bias is lost;
with bfloat16, which has 8 digits, the sum ends at 256.

The elements are not the problem, and neither is the result: 4096 is a float16. Only the numbers on
the way must be finer. So halves (floats of 16 bits) are added up as float32, and the total is
rounded once:

    array.sum(axis, dtype="float32").astype(array.dtype)

GPUs and PyTorch do the same. Products of matrices, means and norms will need it too.

(NumPy adds a row of memory in pairs, which hides the fault. Along a column it adds one row after
the other. So the same numbers give two sums, depending on how they lie in memory.)

Integers have the opposite trouble: a sum of bytes does not fit into a byte. NumPy makes it a
uint64, which is not one of our types. As in PyTorch, integers are added up as int64. So sum_to sees
floats only, and there an item size of 2 bytes means a half.

Sum now uses sum_to. And sum_to asks whether there is anything to sum, since without axes NumPy
would copy the array. `n == 1 != array.shape[gap + i]` means: the size is 1 in the wanted shape, and
more in the array.

The trap is to round in each step: `total = (total + x).astype(float16)` in a loop is the old sum.

Changed: sum_to, Sum, sum.
Try: tensor(np.ones(70000), dtype=as_dtype("float16")).sum(). Why is it not 70000? (See step
core03.)
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
        leaf.grad = grad + (0 if leaf.grad is None else leaf.grad)  # + 0: a copy, recorded
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


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x: Any, dtype: Any) -> Any:
        ctx.dtype = x.dtype
        return x.astype(dtype)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cast, g, ctx.dtype)


def cast(input: Tensor, dtype: DType) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    return Cast.apply(input, numpy_dtype(dtype))


if __name__ == "__main__":
    import timeit

    ones = np.ones((4096, 2), np.float16)
    print("NumPy, along columns:", ones.sum(axis=0))  # -> NumPy, along columns: [2048. 2048.]
    print("NumPy, along a row:  ", ones[:, 0].copy().sum())  # -> NumPy, along a row:   4096.0
    print("here:", sum_to(ones, (2,)), sum_to(ones, (2,)).dtype)
    # -> here: [4096. 4096.] float16

    # The gradient of a bias is such a sum.
    def bias_gradient(dtype):
        """The gradient of a bias that 4,096 rows share, here and as NumPy would add it up."""
        bias = tensor([0.0, 0.0], dtype=dtype, requires_grad=True)
        table = tensor(np.zeros((4096, 2)), dtype=dtype)
        (table + bias).sum().backward()
        naive = (table.array + 1).astype(numpy_dtype(dtype)).sum(axis=0)
        return f"{dtype.name}: {bias.grad.tolist()}, by NumPy's sum {naive.tolist()}"

    print(bias_gradient(as_dtype("float16")))
    # -> float16: [4096.0, 4096.0], by NumPy's sum [2048.0, 2048.0]
    brain = as_dtype("bfloat16")  # 256 by NumPy's sum, where ml_dtypes is installed
    print("no bfloat16 here" if brain.numpy is None else bias_gradient(brain))  # -> ...

    bits = tensor([200, 100], dtype=as_dtype("uint8"))
    print("bytes, by NumPy:", bits.array.sum().dtype)  # -> bytes, by NumPy: uint64
    print("bytes, here:", bits.sum(), bits.sum().dtype, tensor([True, True]).sum())
    # -> bytes, here: tensor(300) tinytorch.int64 tensor(2)

    # No axes: nothing is copied.
    big = np.ones((1000, 1, 1000))
    print(np.shares_memory(sum_to(big, big.shape), big))  # -> True
    for name, action in (
        ("a sum over no axis", lambda: big.sum(axis=())),
        ("sum_to", lambda: sum_to(big, big.shape)),
    ):
        seconds = min(timeit.repeat(action, number=5, repeat=3)) / 5
        print(f"{1e6 * seconds:.1f} microseconds for {name}")
        # -> ... microseconds for a sum over no axis
        # -> ... microseconds for sum_to
