"""Step 67c: Writing into a view: CopySlices

row.mul_(w) writes into the table, too, since the memory is one. With the method so far the row
takes the history of the product, and the table keeps its own: table.sum().backward() knows nothing
of w, and gives the overwritten elements a gradient that they should not have.

The memory belongs to the base, so the base needs the new history. Think of the write as a formula
that makes a new base from the old one and the values:

    old base   [1, 2]                          new base   [1, 2]
               [3, 4]   <- values [15, 24]                [15, 24]

    gradient of the new base   [a, b]     of the old base   [a, b]     of the values   [c, d]
                               [c, d]                       [0, 0]

The values get their part of the gradient: the calls that made the view, repeated on the gradient.
The old base gets zeros there.

CopySlices is this formula. Its forward may write in place, because the memory is the result's. Its
backward may not, since other nodes may hold the same gradient: it writes zeros into a clone. That
is CopySlices once more, so the second derivative is there, too. The other views of the base follow
by themselves (step 67b), and so does the view that was written. Only a base that is a leaf refuses,
as it does itself (step 39d): it would become a result, and get no gradient any more.

So `row *= w` is a formula like any other: what one writes down is what is differentiated. Under
no_grad nothing is recorded, and only the memory changes. (`table[1] = w` needs one method more,
__setitem__, which the package has.)

The trap: part_of(g) shows memory of g, and other nodes may hold g too. Nothing may write into it.

PyTorch: the node has the same name.

Changed: assign. New: CopySlices.
Try: write zeros into g itself, with CopySlices on g in place of the clone. Why does NumPy refuse?
In depth: core01 to core07, device01 to device04, convert01 to convert04, errors01 and errors02,
modes01 to modes04, tensor01 to tensor10, operands01 to operands03, inplace01 to inplace08,
node01 to node03, engine01 to engine09, custom01 to custom06, printing01 to printing04,
graph01 and graph02.
"""

import contextlib
import copy
import heapq
import itertools
import math
import weakref

import numpy as np

try:  # NumPy has no bfloat16 of its own; the package ml_dtypes brings one.
    from ml_dtypes import bfloat16 as numpy_bfloat16
except ImportError:
    numpy_bfloat16 = None


class DType:
    """The type of a tensor's elements. There is one object for each: compare them with `is`.

    name: "float32", ...   numpy: the numpy.dtype with the same bits, or None where there is none.
    itemsize: bytes of one element.   category: 0 boolean, 1 integer, 2 floating point; the higher
    one wins a promotion.
    """

    by_name = {}
    by_numpy = {}

    def __init__(self, name, numpy, itemsize, category):
        self.name = name
        self.numpy = None if numpy is None else np.dtype(numpy)
        self.itemsize = itemsize
        self.category = category
        self.is_floating_point = category == 2
        DType.by_name[name] = self
        if numpy is not None:
            DType.by_numpy[self.numpy] = self

    def __repr__(self):
        return f"tinytorch.{self.name}"


bool_ = DType("bool", np.bool_, 1, 0)  # bool is Python's own
uint8 = DType("uint8", np.uint8, 1, 1)
int8 = DType("int8", np.int8, 1, 1)
int16 = DType("int16", np.int16, 2, 1)
int32 = DType("int32", np.int32, 4, 1)
int64 = DType("int64", np.int64, 8, 1)
float16 = DType("float16", np.float16, 2, 2)
bfloat16 = DType("bfloat16", numpy_bfloat16, 2, 2)
float32 = DType("float32", np.float32, 4, 2)
float64 = DType("float64", np.float64, 8, 2)


class Defaults:
    """The floating point type that Python floats and new tensors get."""

    dtype = float32


def get_default_dtype():
    return Defaults.dtype


def set_default_dtype(dtype):
    """Make dtype, a floating point type, that of new tensors."""
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def as_dtype(dtype):
    """The DType for a DType, its name, a Python type or a NumPy dtype, or TypeError."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DType.by_name:
        return DType.by_name[dtype]
    try:
        return DType.by_numpy[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"not a tinytorch dtype: {dtype!r}") from None


def numpy_dtype(dtype):
    """The numpy.dtype of a DType, or RuntimeError for bfloat16 where ml_dtypes is missing."""
    if dtype.numpy is None:
        raise RuntimeError(f"{dtype!r} needs the package ml_dtypes: pip install ml_dtypes")
    return dtype.numpy


def promote_types(a, b):
    """The smallest type that both fit in, by PyTorch's table: int64 with float32 is float32."""
    if a is b:
        return a
    if a.category != b.category:
        return a if a.category > b.category else b
    if a.category == 2:
        if a.itemsize == b.itemsize:  # float16 and bfloat16: neither holds the other
            return float32
        return a if a.itemsize > b.itemsize else b
    return DType.by_numpy[np.promote_types(a.numpy, b.numpy)]


def number_dtype(number):
    """The type that a Python number stands for when no tensor decides."""
    if isinstance(number, (bool, np.bool_)):  # first, for Python's bool is an int too
        return bool_
    if isinstance(number, (int, np.integer)):
        return int64
    if isinstance(number, (float, np.floating)):
        return Defaults.dtype
    raise TypeError(f"expected a Tensor or a number, not {type(number).__name__}")


def result_type(*operands):
    """The type of an operation's result, from tensors and numbers.

    Tensors with dimensions decide. A 0-d tensor counts only if it is of a higher category, and a
    number only if it is of a higher one still.
    """
    ranked = [None, None, None]  # tensors, 0-d tensors, numbers
    for operand in operands:
        if isinstance(operand, Tensor):
            rank, dtype = int(operand.ndim == 0), operand.dtype
        else:
            rank, dtype = 2, number_dtype(operand)
        ranked[rank] = dtype if ranked[rank] is None else promote_types(ranked[rank], dtype)
    result = None
    for dtype in ranked:
        if result is None or (dtype is not None and dtype.category > result.category):
            result = dtype
    return result


def can_cast(from_, to):
    """Whether a result of type from_ may be stored as `to`: the category must not fall."""
    return from_.category <= to.category


def host_array(data, dtype):
    """A new NumPy array with the elements of data; of PyTorch's type where dtype is None."""
    array = np.array(data)
    if dtype is None:
        python_floats = array.dtype.kind == "f" and not hasattr(data, "dtype")
        dtype = Defaults.dtype if python_floats else array.dtype
    return array.astype(numpy_dtype(as_dtype(dtype)), copy=False)  # it is a copy already


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

    # What most tensors have: read here, and not stored in each of them.
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes; None for a leaf
    _view = None  # of a view: how it came from its base

    def __init__(self, data):
        self.array, self.grad = host_array(data, Defaults.dtype), None

    @property
    def requires_grad(self):
        if self._view is not None:
            self._view.refresh(self)
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
        if self._view is not None:
            self._view.refresh(self)
        return None if self._edge is None else self._edge[0]

    @property
    def is_leaf(self):
        return self.grad_fn is None

    def detach(self):
        """The same elements, outside of the graph. The memory is shared."""
        # A view, not the array itself: roles_of tells saved values apart by their array objects.
        return wrap(self.array.view())

    @property
    def _base(self):
        return None if self._view is None else self._view.base

    @property
    def _version(self):
        return version_of(self.array)

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

    def numpy(self, *, force=False):
        """The array itself: a change of one is a change of the other.

        RuntimeError if the tensor requires gradients and calls are recorded, for the graph would
        not see the change. With force=True it is detached first.
        """
        if self.requires_grad and GradMode.enabled and not force:
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


# id of a storage -> [weak reference to it, number of writes, time of the last one]
versions = {}


class LastWrite:
    """The time of the last write to any storage: 1 before the first one."""

    time = 1


def storage_of(array):
    """The array that owns the memory of `array`; all views of it have the same one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def version_of(array):
    """How often the memory of `array` was written in place, through any view."""
    entry = versions.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def bump_version(array):
    """Count one write into the memory of `array`. The entry goes when the memory is freed."""
    storage = storage_of(array)
    key = id(storage)
    if key not in versions:
        versions[key] = [weakref.ref(storage, lambda _: versions.pop(key)), 0, 1]
    versions[key][1] += 1
    versions[key][2] = LastWrite.time = next_sequence_nr()


def modified_since(array, time):
    """Whether the memory of `array` was written after `time`."""
    entry = versions.get(id(storage_of(array)))
    return entry is not None and entry[2] < time


def wrap(array):
    """A Tensor around an array that was computed: no copy, no check, no history."""
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


def tensor(data, dtype=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array or Tensor, which keeps its
    type."""
    if isinstance(data, Tensor):
        data = data.array
    out = wrap(host_array(data, dtype))
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data, dtype=None):
    """data as a Tensor, without a copy where it already is an array or Tensor of this dtype."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray) and dtype in (None, as_dtype(data.dtype)):
        return from_numpy(data)
    return tensor(data, dtype)


def from_numpy(array):
    """A Tensor on the memory of a NumPy array: a change of one is a change of the other."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    as_dtype(array.dtype)  # TypeError if we do not have the type
    return wrap(array.view())


def edge_of(tensor):
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


# The clock of calls and writes. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


def sum_along(array, dim):
    """The sum along dim, which keeps size 1. Halves are added up as float32, and rounded once."""
    if array.dtype.itemsize == 2:  # only floats come here: 2 bytes are a half
        return array.sum(axis=dim, keepdims=True, dtype=np.float32).astype(array.dtype)
    return array.sum(axis=dim, keepdims=True)


def sum_to(array, shape):
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    # The dimensions that `shape` lacks in front, and those that have size 1 in it.
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1))
    return sum_along(array, axes).reshape(shape)


class View:
    """How a view came from its base.

    base: the tensor that owns the memory, never a view itself. calls: the (Function, parameters)
    that lead from the base to the view. base_edge: the base's place in the graph at that time.
    """

    def __init__(self, base, calls):
        self.base, self.calls, self.base_edge = base, calls, base._edge

    def refresh(self, view):
        """Give view the history that its base has got from in-place writes since."""
        if self.base._edge is not self.base_edge:
            self.base_edge, again = self.base._edge, self.base
            with set_grad_enabled(True):
                for function, parameters in self.calls:
                    again = function.apply(again, *parameters)
            rebase_history(view, again._edge)


def record_view(out, source, call):
    """Note that `out` was made from `source` by `call`, unless the call had to copy."""
    if storage_of(out.array) is storage_of(source.array):
        view = source._view
        out._view = View(source, [call]) if view is None else View(view.base, [*view.calls, call])


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph.

    forward(ctx, *arrays) computes on arrays. backward(ctx, g) is one formula for plain arrays and,
    where the gradient is to be differentiated again, for Tensors: it uses operators, methods that
    both have, functions of `ctx.xp`, which is numpy or the class Tensor, and `ctx.call`.
    """

    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back
    view = False  # the result may show the memory of the first input

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
        out = wrap(np.asarray(result))  # NumPy gives a number where no dimension is left
        needed = any(edge is not None for edge in ctx.edges)
        if needed and GradMode.enabled and cls.differentiable:
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of(arrays, result)
            if cls.elementwise:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]
            out._requires_grad, out._edge = True, (ctx, 0)
        if cls.view:
            record_view(out, args[0], (cls, args[1:]))
        return out

    def save_for_backward(ctx, *values):
        """Keep arrays (or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    @property
    def needs_input_grad(ctx):
        """For each argument, whether a gradient has to be computed for it."""
        return [edge is not None for edge in ctx.edges]

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
        inner = function()
        inner.edges = [None] * (1 + len(parameters))  # nothing is recorded
        return inner.forward(x, *parameters)

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


def check_saved(node):
    """RuntimeError if an array that the call saved was written after the call."""
    for value in node.saved:
        if isinstance(value, np.ndarray) and modified_since(value, node.sequence_nr):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {list(value.shape)}, saved by {type(node).__name__}, is at "
                f"version {version_of(value)}"
            )


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
            if edge is None or grad is None:
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
        time, node = heapq.heappop(heap)
        if LastWrite.time < time:
            check_saved(node)
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
        leaf.grad = grad.clone() if leaf.grad is None else leaf.grad + grad  # recorded
    elif leaf.grad is None:
        leaf.grad = wrap(np.array(grad))  # a copy: Add hands the same array to both inputs
    else:
        leaf.grad.array += grad
        bump_version(leaf.grad.array)  # a graph may have saved it


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
        for_a, for_b = ctx.needs_input_grad
        ctx.save_for_backward(a if for_b else None, b if for_a else None)
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


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


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x, dtype):
        ctx.dtype = x.dtype
        return x.astype(dtype)

    def backward(ctx, g):
        return ctx.call(Cast, g, ctx.dtype)


@tensor_method("to")
def to(x, dtype):
    """x as dtype; x itself where it is of that type. An integer type ends the graph."""
    if x.dtype is dtype:
        return x
    if not dtype.is_floating_point:
        x = x.detach()
    return Cast.apply(x, numpy_dtype(dtype))


class Clone(Function):
    """y = x, in memory of its own;   dy/dx = 1."""

    def forward(ctx, x):
        return np.array(x)

    def backward(ctx, g):
        return g


@tensor_method("clone")
def clone(x):
    """A copy with memory of its own. The gradient flows through."""
    return Clone.apply(x)


def number_like(number, dtype):
    """The number as one that does not widen an array of this type, as Python's do a bfloat16."""
    return numpy_dtype(dtype).type(number) if dtype is bfloat16 else number


def operands(a, b, floating=False):
    """Two tensors, or a tensor and a number, brought to the type of their result.

    A number stays a number, and an array counts as a tensor. With `floating`, integers become the
    default type.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = as_tensor(a), as_tensor(b)
    a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))  # Python's numbers
    dtype = result_type(a, b)
    if floating and not dtype.is_floating_point:
        dtype = Defaults.dtype
    return [x.to(dtype) if isinstance(x, Tensor) else number_like(x, dtype) for x in (a, b)]


@tensor_method("exp")
def exp(x):
    return Exp.apply(x)


@tensor_method("__add__", "__radd__")
def add(a, b):
    return Add.apply(*operands(a, b))


@tensor_method("__mul__", "__rmul__")
def mul(a, b):
    return Mul.apply(*operands(a, b))


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__sub__")
def sub(a, b):
    return Sub.apply(*operands(a, b))


@tensor_method("__rsub__")
def rsub(self, other):
    return sub(other, self)


@tensor_method("__truediv__")
def div(a, b):
    return Div.apply(*operands(a, b, floating=True))


@tensor_method("__rtruediv__")
def rdiv(self, other):
    return div(other, self)


@tensor_method("__pow__")
def pow(x, n):
    return Pow.apply(*operands(x, n))


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: each element gets the gradient of the sum."""

    def forward(ctx, x, dim, keepdim):
        total = sum_along(x, dim)
        ctx.shape, ctx.kept = x.shape, total.shape
        return total if keepdim else total.squeeze(dim)

    def backward(ctx, g):
        return ctx.call(Expand, g.reshape(ctx.kept), ctx.shape)


@tensor_method("sum")
def sum(x, dim=None, keepdim=False):
    """The sum along dim (an int or several), or of all elements. keepdim keeps dim as size 1.

    Integers and booleans are added up as int64.
    """
    return Sum.apply(x if x.dtype.is_floating_point else x.to(int64), dim, keepdim)


@tensor_method("mean")
def mean(x, dim=None, keepdim=False):
    """The mean along dim (an int or several), or of all elements."""
    total = sum(x, dim, keepdim)
    return total / (x.numel() // total.numel())


class Expand(Function):
    """y = x repeated to `shape`, without a copy. Backward sums what was repeated."""

    view = True

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
        for_a, for_b = ctx.needs_input_grad
        ctx.save_for_backward(a if for_b else None, b if for_a else None)
        return a @ b

    def backward(ctx, g):
        a, b = ctx.saved
        return None if b is None else g @ b.T, None if a is None else a.T @ g


@tensor_method("matmul", "__matmul__")
def matmul(a, b):
    """The product of two matrices, [n, m] @ [m, p] = [n, p]."""
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected both to have the same dtype, not {a.dtype!r} and {b.dtype!r}")
    return MatMul.apply(a, b)


class Reshape(Function):
    """y = the elements of x, in their order, in another shape. The gradient gets the old shape."""

    view = True

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

    view = True

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
        return Compare.apply(holds, *operands(a, b))

    return operation


eq = relation(np.equal, "eq", "__eq__")
gt = relation(np.greater, "gt", "__gt__")


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


class ArgMax(Function):
    """The index of the first largest x_i along dim, or among all elements for None."""

    differentiable = False

    def forward(ctx, x, dim):
        return x.argmax(axis=dim)


@tensor_method("argmax")
def argmax(x, dim=None):
    return ArgMax.apply(x, dim)


class Index(Function):
    """y = x[key]. An element that is chosen twice gets both gradients: they are added up."""

    view = True

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


def randn(*size, generator=default_generator, requires_grad=False):
    """randn(2, 3): a tensor of this shape and the default type, with normal numbers."""
    n = math.prod(size)
    u, v = generator.rng.random((2, (n + 1) // 2), np.float32)
    distance, direction = np.sqrt(-2 * np.log1p(-u)), 2 * math.pi * v
    pairs = distance * np.stack([np.cos(direction), np.sin(direction)])
    return tensor(pairs.reshape(-1)[:n].reshape(size), Defaults.dtype, requires_grad)


def randperm(n, generator=default_generator):
    """The integers 0 to n - 1 in random order."""
    return tensor(generator.rng.permutation(n))


class CopySlices(Function):
    """base = base with the part that a view shows replaced by `values`, in place."""

    def forward(ctx, base, values, calls):
        ctx.calls = calls
        ctx.part_of(base)[...] = values
        return base

    def part_of(ctx, whole):
        """The part of an array or Tensor, of the base's shape, that the view shows."""
        for function, parameters in ctx.calls:
            whole = ctx.call(function, whole, *parameters)
        return whole

    def backward(ctx, g):
        rest = ctx.call(CopySlices, ctx.call(Clone, g), 0.0, ctx.calls)
        return rest, ctx.part_of(g)


def rebase_history(tensor, edge):
    """Make tensor the result of another call: edge is (node, output number)."""
    tensor._requires_grad, tensor._edge = True, edge


def assign(target, values):
    """Write the result of an operation into the memory of target, which takes its history."""
    if values.shape != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(values.shape)}"
        )
    if not can_cast(values.dtype, target.dtype):
        raise RuntimeError(
            f"result type {values.dtype!r} can't be cast to the desired output type "
            f"{target.dtype!r}"
        )
    values = values.to(target.dtype)
    recorded = GradMode.enabled and (target.requires_grad or values.requires_grad)
    if target._view is not None and recorded:
        base, calls = target._view.base, target._view.calls
        if base.requires_grad and base.is_leaf:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
        rebase_history(base, CopySlices.apply(base, values, calls)._edge)
        bump_version(target.array)
        return target
    np.copyto(target.array, values.array)
    bump_version(target.array)
    if values.requires_grad:
        call = values.grad_fn
        rebase_history(target, values._edge)
        if has_saved(call, values.array):  # the call keeps the memory of target instead
            call.saved = tuple(target.array if x is values.array else x for x in call.saved)
            call.sequence_nr = next_sequence_nr()  # after the write that made it
    return target


def has_saved(call, array):
    return call is not None and any(value is array for value in call.saved)


def in_place(operation, *names):
    """Attach the method that writes the result of operation(self, ...) into self's memory."""

    @tensor_method(*names)
    def write(self, *args):
        if GradMode.enabled and self.requires_grad and self.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        values = operation(self, *args)
        if has_saved(values.grad_fn, self.array):  # backward needs what would be overwritten
            values = operation(self.clone(), *args)
        return assign(self, values)


in_place(add, "add_", "__iadd__")
in_place(sub, "sub_", "__isub__")
in_place(mul, "mul_", "__imul__")
in_place(div, "div_", "__itruediv__")
in_place(exp, "exp_")


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


if __name__ == "__main__":
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    w = tensor([5.0, 6.0], requires_grad=True)

    table = x * 1.0
    first, second = table[0], table[1]
    second.mul_(w)
    print(table.tolist())  # -> [[1.0, 2.0], [15.0, 24.0]]
    table.sum().backward(retain_graph=True)
    print(x.grad.tolist(), w.grad.tolist())  # -> [[1.0, 1.0], [5.0, 6.0]] [3.0, 4.0]
    print(type(table.grad_fn).__name__, table._version)  # -> CopySlices 1

    # Derivatives of any order.
    x.grad = w.grad = None
    (table * table).sum().backward(create_graph=True)
    print(x.grad.tolist(), w.grad.tolist())  # -> [[2.0, 4.0], [150.0, 288.0]] [90.0, 192.0]
    slope, x.grad, w.grad = x.grad, None, None
    slope.sum().backward(retain_graph=True)
    print("second derivative:", x.grad.tolist())
    # -> second derivative: [[2.0, 2.0], [50.0, 72.0]]

    # The view that was written follows, and so does the other one.
    x.grad = None
    (second.sum() + first.sum() * 10.0).backward()
    print("the views follow:", x.grad.tolist())  # -> the views follow: [[10.0, 10.0], [5.0, 6.0]]

    row = x[0]
    try:
        row.mul_(2.0)
    except RuntimeError as error:
        print(str(error)[:14])  # -> a view of a le

    with no_grad():
        row.mul_(2.0)  # nothing is recorded: only the memory changes
    print(x.tolist(), x.is_leaf)  # -> [[2.0, 4.0], [3.0, 4.0]] True

    # A column, in a plain table.
    plain = tensor([[1.0, 2.0], [3.0, 4.0]])
    plain[:, 1].mul_(w)
    w.grad = None
    plain.sum().backward()
    print(plain.tolist(), w.grad.tolist())  # -> [[1.0, 10.0], [3.0, 24.0]] [2.0, 4.0]
