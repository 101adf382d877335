"""Step 34: Element types

A list of indices is not a list of measurements, and until now tensor([0, 1, 2]) made floats of
both. From here on ints become int64, bools become bool, and floats get the default type, float32
(set_default_dtype chooses another). A tensor's dtype is a DType: one object for each type, with a
name, a size in bytes and a category.

PyTorch's rule for operands of different types is about categories. There are three,

    0 boolean   <   1 integer   <   2 floating point

and the higher category wins, with its own size: int64 with float32 gives float32. NumPy says
float64, since float32 is exact for whole numbers only up to 2^24. But that is expensive: after one
forgotten array of indices a whole network computes in float64, in twice the memory. Within a
category the larger type wins.

Single numbers have less of a say. A 0-d tensor, one of shape (), counts only if its category is
higher than that of the tensors with dimensions, and a Python number only if its is higher than that
of any tensor. So x * 2 and x * 2.0 leave a float32 tensor float32, and an integer tensor times 1.5
gets the default float type.

float16 and bfloat16 both have 16 bits, and neither can hold all numbers of the other: together they
give float32, as uint8 and int8 give int16. bfloat16 is the upper half of a float32. Its bits look
like an integer, but cannot be added like one: the demo does it, and 1 + 1 is not 2. NumPy has no
bfloat16; the package ml_dtypes brings one.

Only floating point tensors can ask for gradients. A derivative is about small changes, and an
integer has none: the next one after 3 is 4.

This step only states the rule. Step 42 applies it to operands of two types; until then NumPy's own
rule is at work.

Changed: tensor, Tensor.dtype. New: DType and its ten objects, set_default_dtype, as_dtype,
promote_types, result_type, can_cast. Module finished: core/dtype.py.
Try: promote_types(int64, float16), and then np.float16(2049). Is this a type for indices?
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

try:  # NumPy has no bfloat16 of its own; the extra `bf16` brings one.
    from ml_dtypes import bfloat16 as numpy_bfloat16
except ImportError:
    numpy_bfloat16 = None


class DType:
    """The type of a tensor's elements. There is one object for each: compare them with `is` or ==.

    Attributes:
        name: "float32", ...
        numpy: the numpy.dtype with the same bits, or None where it needs a package that is missing.
        itemsize: bytes of one element.
        category: 0 boolean, 1 integer, 2 floating point: a higher one wins a promotion.
    """

    by_numpy: dict[np.dtype, "DType"] = {}
    by_name: dict[str, "DType"] = {}

    def __init__(self, name: str, numpy: Any, itemsize: int, category: int):
        self.name = name
        self.numpy = None if numpy is None else np.dtype(numpy)
        self.itemsize = itemsize
        self.category = category
        self.is_floating_point = category == 2
        self.is_complex = False
        self.is_signed = not (name == "bool" or name.startswith("uint"))
        DType.by_name[name] = self
        if numpy is not None:
            DType.by_numpy[self.numpy] = self

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"

    def __reduce__(self):
        return as_dtype, (self.name,)


bool_ = DType("bool", np.bool_, 1, 0)
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


def get_default_dtype() -> DType:
    return Defaults.dtype


def set_default_dtype(dtype: DType) -> None:
    """Makes `dtype` the type of new floating point tensors. TypeError where it is no float type."""
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, its name, a Python type or a NumPy dtype; TypeError for others."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DType.by_name:
        return DType.by_name[dtype]
    try:
        return DType.by_numpy[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"not a tinytorch dtype: {dtype!r}") from None


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy.dtype of `dtype`. RuntimeError for bfloat16 where ml_dtypes is not installed."""
    if dtype.numpy is None:
        raise RuntimeError(f"{dtype!r} needs the package ml_dtypes: pip install 'tinytorch[bf16]'")
    return dtype.numpy


def promote_types(a: DType, b: DType) -> DType:
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


def number_dtype(number: Any) -> DType:
    """The type that a Python number stands for when no tensor decides."""
    if isinstance(number, (bool, np.bool_)):
        return bool_
    if isinstance(number, (int, np.integer)):
        return int64
    if isinstance(number, (float, np.floating)):
        return Defaults.dtype
    raise TypeError(f"expected a Tensor or a number, not {type(number).__name__}")


def result_type(*operands: Any) -> DType:
    """The type of an operation's result, from tensors, DTypes and Python numbers.

    Tensors with dimensions decide. A 0-d tensor counts only if it is of a higher category
    (bool < integer < floating point), and so does, after it, a Python number:

        int64 tensor + 1.5 -> default float type        float32 tensor + 2 -> float32
        float32 [3] + float64 [] -> float32             int64 [3] + float64 [] -> float64
    """
    ranked: list[DType | None] = [None, None, None]  # tensors, 0-d tensors, numbers
    for operand in operands:
        if isinstance(operand, DType):
            rank, dtype = 0, operand
        elif hasattr(operand, "array"):
            rank, dtype = int(operand.array.ndim == 0), operand.dtype
        else:
            rank, dtype = 2, number_dtype(operand)
        ranked[rank] = dtype if ranked[rank] is None else promote_types(ranked[rank], dtype)
    result = None
    for dtype in ranked:
        if result is None:
            result = dtype
        elif dtype is not None and dtype.category > result.category:
            result = promote_types(result, dtype)
    if result is None:
        raise ValueError("result_type() needs at least one tensor or number")
    return result


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of type `from_` may be stored as `to` without a change of category."""
    return from_.category <= to.category


# Numbers the calls 0, -1, -2, ... An output is always younger than its inputs, so this is a
# topological order, and a heap gives the youngest first.
next_order = itertools.count(0, -1).__next__


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """An n-dimensional array that can be differentiated.

    Attributes:
        array: the NumPy array with the elements; the graph does not see changes of it.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    _requires_grad = False
    _grad_fn = None
    _grad = None
    order = None  # in the graph a leaf is an end: a recorded call has a number
    __array_priority__ = 1000  # numpy_array + tensor is our business, not NumPy's

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.array.dtype]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`."""
        return self.shape if dim is None else self.array.shape[dim]

    def numel(self) -> int:
        return int(self.array.size)

    def __repr__(self) -> str:
        indent = " " * len("tensor(")  # the rows of a matrix stand below each other
        return "tensor(" + str(self.array).replace("\n", "\n" + indent) + ")"

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._grad_fn is not None:
            if not value:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            return
        if value and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.dtype!r}"
            )
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Sets requires_grad in place and returns the tensor. RuntimeError for integer types."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        return self._grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def grad(self) -> "Tensor | None":
        return self._grad

    @grad.setter
    def grad(self, grad: "Tensor | None") -> None:
        self._grad = grad

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        return wrap(self.array.view())

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.array.tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number. RuntimeError where there are more, or none."""
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            many = "no values" if self.array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.array.item())

    def __float__(self) -> float:
        return float(self.array.item())  # ValueError where there are more, or none

    def __int__(self) -> int:
        return int(self.array.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]


def wrap(array: Any) -> Tensor:
    """A tensor around an array, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array = array
    return out


def tensor_method(*names: str) -> Callable:
    """Attaches a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The package never defines a method twice: RuntimeError. Only a program that you run yourself
    (a step, a notebook) may put its own version in the place of the package's.
    """

    def attach(function: Callable) -> Callable:
        for name in names:
            written = getattr(function, "fget", function)  # a property hides its function
            if name in Tensor.__dict__ and written.__module__ != "__main__":
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    array = np.array(data)
    found = Defaults.dtype if array.dtype.kind == "f" else as_dtype(array.dtype)
    return array.astype(numpy_dtype(found if dtype is None else dtype))


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested lists, or an array.

    Python floats become the default type, ints int64, bools bool; arrays keep theirs.
    """
    out = wrap(host_array(data, None if dtype is None else as_dtype(dtype)))
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any) -> Tensor:
    """data itself if it is a Tensor, else a new one around it: a constant of the formula."""
    return data if isinstance(data, Tensor) else tensor(data)


class GradMode:
    """Whether calls are recorded: the one switch, and the class is the box that holds it."""

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


new = object.__new__


NOTHING = ()  # what a call has saved that saved nothing


class Function:
    """One call of an operation. The same object is `ctx` in forward, grad_fn of the result, and
    the node that a backward pass visits.

    A subclass writes two short methods:

        forward(ctx, *arrays)    arrays (and other parameters) in, array out
        backward(ctx, grad)      gradient of the output in, gradient of each tensor input out

    backward runs on plain arrays, which is fast, or on Tensors when the gradient itself is to be
    differentiated. So its formula uses only what both have: operators, methods with the same
    meaning, functions of `ctx.xp` (numpy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Of one call; most calls keep these.
    xp: Any
    order: int
    edges: list  # for each argument: a Function, a leaf Tensor, or None
    output_id: int  # id of the result's array, to know it again among the saved ones
    saved: Any = NOTHING

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward on the arrays of `args`, and records the call if a gradient is wanted."""
        ctx = new(cls)
        ctx.edges = edges = []
        arrays, wanted = [], False
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x._requires_grad:
                    wanted = True
                    edge = x._grad_fn
                    if edge is None:
                        edge = x
                x = x.array
            arrays.append(x)
            edges.append(edge)

        ctx.xp = np
        result = cls.forward(ctx, *arrays)
        record = wanted and GradMode.enabled
        if record:
            ctx.order = next_order()
        out = new(Tensor)
        out.array = result if result.__class__ is np.ndarray else ctx.as_array(result)
        if record:
            out._requires_grad = True
            out._grad_fn = ctx
            ctx.output_id = id(out.array)
        return out

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = np.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def save_for_backward(ctx, *values: Any) -> None:
        """Keeps arrays (or numbers, or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    @property
    def needs_input_grad(ctx) -> tuple[bool, ...]:
        """For each argument, whether a gradient has to be computed for it."""
        return tuple(edge is not None for edge in ctx.edges)

    def call(ctx, function: type["Function"], x: Any, *parameters: Any) -> Any:
        """Another operation inside backward: recorded for a Tensor, only computed for an array."""
        if isinstance(x, Tensor):
            return function.apply(x, *parameters)
        inner = new(function)
        inner.xp = ctx.xp
        inner.edges = [None] * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(value) for value in ctx.saved)
        return twin.backward(*grads)

    def saved_tensor(ctx, value: Any) -> Any:
        """A saved array as the tensor that it was: wrapped anew, so that no cycle keeps the graph.

        Which one it was, its id tells: all inputs were alive when forward saved it.
        """
        if not hasattr(value, "dtype"):
            return value
        history = ctx if ctx.output_id == id(value) else None
        for edge in ctx.edges:
            if isinstance(edge, Tensor):
                if edge.array is value:
                    return edge
            elif edge is not None:
                if id(value) == edge.output_id:
                    history = edge
        out = wrap(value)
        if history is not None:
            out._requires_grad = True
            out._grad_fn = history
        return out


def edge_of(tensor: Tensor) -> Any:
    """Where a gradient of `tensor` goes: a node, the leaf, or None."""
    if not tensor.requires_grad:
        return None
    if tensor._grad_fn is None:
        return tensor
    return tensor._grad_fn


def backward_pass(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor],
    create_graph: bool,
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    On their way gradients are plain arrays. They are Tensors if they are to be differentiated
    (create_graph).

    Returns {leaf: gradient}.
    """
    as_tensors = create_graph
    arrived: dict = {}  # node or leaf -> its gradient
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    heap: list = []
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if edge not in arrived:
                if edge.order is not None:  # a leaf has none
                    heappush(heap, (edge.order, edge))
                arrived[edge] = grad
            elif edge in ours:
                arrived[edge] += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
                if not as_tensors:
                    ours.add(edge)
        if not heap:
            break
        node = heappop(heap)[1]
        grad = arrived.pop(node)
        if as_tensors:
            grads = node.gradients([grad])
        else:
            grads = node.backward(grad)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
    return arrived


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Adds an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is not None:
        leaf._grad.array += grad
    else:
        grad = np.array(grad)
        leaf._grad = wrap(grad)


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    create_graph: bool = False,
) -> None:
    """Adds to the grad of each leaf behind this tensor the derivative with respect to it.

    With create_graph the gradients are recorded like any computation, graph and all.
    """
    if not self.requires_grad:
        raise RuntimeError("this tensor does not require grad and does not have a grad_fn")
    if gradient is None:
        if self.array.size != 1:
            raise RuntimeError(
                f"grad can be implicitly created only for scalar outputs, this one has the "
                f"shape {list(self.shape)}"
            )
        gradient = wrap(np.ones_like(self.array))
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([self], [gradient], create_graph).items():
            accumulate(leaf, grad)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g * y


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    """e to the power of input."""
    return Exp.apply(input)


@tensor_method("add", "__add__", "__radd__")
def add(input: Tensor, other: Any) -> Tensor:
    """input + other."""
    return Add.apply(input, other)


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other."""
    return Mul.apply(input, other)


if __name__ == "__main__":

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError) as reason:
            return f"{type(reason).__name__}: {reason}"

    print(tensor([1, 2]).dtype, tensor([1, 2.5]).dtype, tensor(True).dtype)
    # -> tinytorch.int64 tinytorch.float32 tinytorch.bool
    print("arrays keep theirs:", tensor(np.array([1.0])).dtype)
    # -> arrays keep theirs: tinytorch.float64
    print(int16.itemsize, int16.category, float16.itemsize, float16.category)  # -> 2 1 2 2
    print(as_dtype("int64") is int64, as_dtype(np.float32) is float32)  # -> True True

    types = [bool_, uint8, int64, float16, bfloat16, float32, float64]
    print(" " * 10 + "".join(f"{b.name:>10}" for b in types))
    # ->             bool     uint8     int64   float16  bfloat16   float32   float64
    for a in types:
        print(f"{a.name:10}" + "".join(f"{promote_types(a, b).name:>10}" for b in types))
        # -> bool            bool     uint8     int64   float16  bfloat16   float32   float64
        # -> uint8          uint8     uint8     int64   float16  bfloat16   float32   float64
        # -> int64          int64     int64     int64   float16  bfloat16   float32   float64
        # -> float16      float16   float16   float16   float16   float32   float32   float64
        # -> bfloat16    bfloat16  bfloat16  bfloat16   float32  bfloat16   float32   float64
        # -> float32      float32   float32   float32   float32   float32   float32   float64
        # -> float64      float64   float64   float64   float64   float64   float64   float64

    indices, x = tensor([0, 1]), tensor([0.5, 1.5])
    print("NumPy:", (indices.array + x.array).dtype)  # -> NumPy: float64
    print("here: ", result_type(indices, x).name)  # -> here:  float32
    print(result_type(x, 2).name, result_type(x, 2.5).name)  # -> float32 float32
    print(result_type(indices, 1.5).name)  # -> float32
    double = tensor(np.array(1.0))
    print("0-d:", result_type(x, double).name, result_type(indices, double).name)
    # -> 0-d: float32 float64

    one = (np.ones(1, np.float32).view(np.uint32) >> 16).astype(np.uint16)  # bfloat16's bits of 1
    total = (one + one).astype(np.uint32) << 16
    print("1 + 1 in integers on bits:", total.view(np.float32)[0])
    # -> 1 + 1 in integers on bits: 1.7014118e+38

    print(error(indices.requires_grad_).partition(",")[0])
    # -> RuntimeError: only Tensors of floating point dtype can require gradients
    w = tensor([1.0, 2.0], dtype=float64, requires_grad=True)
    (w * w).backward(tensor([1.0, 1.0], dtype=float64))
    print(w.grad, w.grad.dtype)  # -> tensor([2. 4.]) tinytorch.float64
    print(error(as_dtype, "int65"))  # -> TypeError: not a tinytorch dtype: 'int65'
