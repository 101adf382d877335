"""Step 36: Data in and out

A tensor is worth little if data gets into it slowly, or wrongly, or not at all.

There are two ways in, and they differ in memory. tensor(data) copies: later changes of data have no
effect. from_numpy(array) does not: tensor and array are two names for one memory, and a write into
one shows in the other. as_tensor copies only where it must.

There are two ways out as well: x.numpy() shares the memory; x.tolist() and x.item() are copies, as
Python numbers. x.numpy() is refused where it would do harm: for a tensor that requires gradients,
since the graph would not see a write into the array, and for a tensor on another device, since a
copy should be asked for. force=True asks for it. pickle accepts leaves only, for a file cannot hold
the graph that made the others. (pin_memory has a meaning from step 70 on.)

Nested lists are measured first (scan). Rows of different lengths are an error that names the
dimension. A value that does not fit its type is one, too: NumPy turns 300.0 into 44 for a uint8,
without a word. Here nothing is cut off in silence.

Which tensors share memory? An array that is a view knows its base, and at the end of that chain is
the array that owns the memory: the storage. Step 31 named the trap, a write that no graph sees. So
writes are counted, by storage: after count_write(array), all views of that storage have a new
version. A weak reference watches the storage, and its count is forgotten when it dies. The writes
also get numbers, from the same row as the calls, next_order. So written_since(array, order) tells
whether a storage has been written since a certain call, and the graph will ask that in step 40.

Changed: tensor, as_tensor, host_array. New: scan, from_numpy, Tensor(2, 3), Tensor.numpy and the
conversions to Python numbers, count_write. Modules finished: core/data.py, core/version.py.
Try: from_numpy(np.arange(3.0)[::-1]), an array with a negative stride. What does the error advise?
"""

import contextlib
import copy
import itertools
import weakref
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import Defaults, DType, as_dtype, number_dtype, numpy_dtype, promote_types

# Numbers all that happens, calls and writes in place: 0, -1, -2, ... An output is younger than its
# inputs, so this is a topological order of the calls, and a heap gives the youngest first.
next_order = itertools.count(0, -1).__next__


class Writes:
    """The number of the last write in place, of whatever storage; 1 before there is one."""

    last = 1


# id of a storage -> [weak reference to it, how often it was written, the number of the last write]
written: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`: the same one for all views of it."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through whatever view."""
    entry = written.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def written_since(array: Any, order: int) -> bool:
    """Whether the memory of `array` was written after what has the number `order`."""
    entry = written.get(id(storage_of(array)))
    return entry is not None and entry[2] < order


def count_write(array: Any) -> None:
    """Notes one write into the memory of `array`. The count is forgotten with the storage."""
    storage = storage_of(array)
    key = id(storage)
    entry = written.get(key)
    if entry is None:
        entry = written[key] = [weakref.ref(storage, lambda _: written.pop(key, None)), 0, 1]
    entry[1] += 1
    entry[2] = Writes.last = next_order()


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """An n-dimensional array that can be differentiated.

    Attributes:
        array: the NumPy (or CuPy) array with the elements; the graph does not see changes of it.
        device: the Device where the array lives.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.

    `Tensor(2, 3)` is an uninitialised float tensor of that shape, `Tensor([1, 2])` a float tensor
    of these values, as in PyTorch; prefer `tensor(...)`, which keeps the type of its data.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    device: Device
    _requires_grad = False
    _grad_fn = None
    _grad = None
    order = None  # in the graph a leaf is an end: a recorded call has a number
    __array_priority__ = 1000  # numpy_array + tensor is our business, not NumPy's

    def __init__(self, *data: Any, device: Any = None):
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            made = tensor(data[0], dtype=Defaults.dtype, device=device)
            self.array, self.device = made.array, made.device
        else:
            self.device = as_device(device)
            shape = data[0] if data and isinstance(data[0], Size) else data or (0,)
            self.array = self.device.xp.empty(shape, numpy_dtype(Defaults.dtype))

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
        array = self.device.backend.to_numpy(self.array)
        return "tensor(" + str(array).replace("\n", "\n" + indent) + ")"

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
        return wrap(self.array.view(), self.device)

    # Out of tinytorch, into Python and NumPy.

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy.ndarray that shares the memory where that is possible.

        RuntimeError for a tensor that requires grad, TypeError for one on another device; with
        force=True it is detached and copied to the host instead.
        """
        if not force:
            if self.requires_grad:
                raise RuntimeError(
                    "Can't call numpy() on Tensor that requires grad. "
                    "Use tensor.detach().numpy() instead."
                )
            if self.device is not cpu:
                raise TypeError(
                    f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() "
                    f"to copy the tensor to host memory first."
                )
        return self.device.backend.to_numpy(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy(force=True).tolist()

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

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]

    def __format__(self, spec: str) -> str:
        if self.array.ndim == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __reduce__(self):
        if self.grad_fn is not None:
            raise RuntimeError("only leaf tensors can be pickled: call detach() first")
        return unpickle, (type(self), self.numpy(force=True), self.device, self._requires_grad)


def unpickle(cls: type, array: np.ndarray, device: Device, requires_grad: bool) -> Tensor:
    """A tensor from what Tensor.__reduce__ wrote; hooks stay behind, as in PyTorch."""
    out = wrap(device.backend.from_numpy(array, device.index), device, cls)
    out._requires_grad = requires_grad
    return out


def wrap(array: Any, device: Device, cls: type = Tensor) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(cls)
    out.array = array
    out.device = device
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


def scan(data: Any, depth: int = 1) -> tuple[Any, tuple[int, ...], DType | None]:
    """Nested data as (plain lists and numbers, shape, type). `depth` is for messages."""
    if hasattr(data, "array"):  # a Tensor
        return data.tolist(), data.array.shape, data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        return data.tolist(), data.shape, as_dtype(data.dtype)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        parts, shape, dtype = [], None, None
        for item in data:
            part, its_shape, its_dtype = scan(item, depth + 1)
            if shape is not None and its_shape != shape:
                raise ragged(shape, its_shape, depth)
            parts.append(part)
            shape = its_shape
            if its_dtype is not None:
                dtype = its_dtype if dtype is None else promote_types(dtype, its_dtype)
        return parts, (len(parts), *(shape or ())), dtype
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    try:
        return data, (), number_dtype(data)
    except TypeError:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") from None


def ragged(expected: tuple[int, ...], found: tuple[int, ...], dim: int) -> Exception:
    """The error for two parts of one sequence, from dimension `dim` on, that differ in shape."""
    for a, b in zip(expected, found, strict=False):
        if a != b:
            return ValueError(f"expected sequence of length {a} at dim {dim} (got {b})")
        dim += 1
    return TypeError(f"expected only numbers or only sequences at dim {dim}, got both")


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    if type(data) in (float, int, bool):
        found = number_dtype(data)
    else:
        data, _, found = scan(data)
    wanted = numpy_dtype((found or Defaults.dtype) if dtype is None else dtype)
    if wanted.kind in "iu" and found is not None and found.is_floating_point:
        values = np.trunc(np.array(data, dtype=np.float64))
        array = values.astype(wanted)
        if (array != values).any():
            wrong = np.extract(array != values, values)[0]
            raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {wrong}")
        return array
    try:
        return np.array(data, dtype=wanted)
    except OverflowError as error:
        raise RuntimeError(f"value cannot be converted to {dtype or found}: {error}") from None


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, an array, a tensor.

    Python floats become the default type, ints int64, bools bool; arrays and tensors keep theirs.
    Raises ValueError for ragged sequences, TypeError for strings, RuntimeError for other objects.
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data.numpy(force=True)
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where it already is an array or tensor as asked for."""
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and device is None and dtype in (None, as_dtype(data.dtype)):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: a change of one is a change of the other.

    TypeError where it is no array, or of an element type that tinytorch does not have; ValueError
    for negative strides.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    as_dtype(array.dtype)
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one of the strides of the array is negative, and tensors with negative "
            "strides are not supported. Make a copy first: array.copy()"
        )
    return wrap(array.view(), device_of(array))


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


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
    meaning, functions of `ctx.xp` (numpy, cupy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    order: int
    edges: list  # for each argument: a Function, a leaf Tensor, or None
    output_id: int  # id of the result's array, to know it again among the saved ones
    saved: Any = NOTHING

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward on the arrays of `args`, and records the call if a gradient is wanted."""
        ctx = new(cls)
        ctx.edges = edges = []
        arrays, device, wanted = [], None, False
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x.device is not device:
                    if device is not None:
                        return cls.apply(*on_one_device(args))
                    device = x.device
                if x._requires_grad:
                    wanted = True
                    edge = x._grad_fn
                    if edge is None:
                        edge = x
                x = x.array
            arrays.append(x)
            edges.append(edge)

        ctx.device, ctx.xp = device, device.xp
        result = cls.forward(ctx, *arrays)
        record = wanted and GradMode.enabled
        if record:
            ctx.order = next_order()
        device = ctx.device  # a transfer has changed it
        out = new(Tensor)
        out.array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out.device = device
        if record:
            out._requires_grad = True
            out._grad_fn = ctx
            ctx.output_id = id(out.array)
        return out

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
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
        inner.xp, inner.device = ctx.xp, ctx.device
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
        out = wrap(ctx.device.xp.asarray(value), ctx.device)
        if history is not None:
            out._requires_grad = True
            out._grad_fn = history
        return out


def on_one_device(args: tuple) -> list:
    """Brings 0-d CPU tensors to the device of the others; RuntimeError for any other mix."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    others = {x.device for x in tensors if x.device is not cpu or x.array.ndim}
    if len(others) > 1:
        found = ", ".join(sorted(map(str, others)))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{found}!"
        )
    target = others.pop() if others else cpu
    return [x.to(target) if isinstance(x, Tensor) and x.device is not target else x for x in args]


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
        grad = leaf.device.xp.array(grad)
        leaf._grad = wrap(grad, leaf.device)


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
        gradient = wrap(self.device.xp.ones_like(self.array), self.device)
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([self], [gradient], create_graph).items():
            accumulate(leaf, grad)


class Transfer(Function):
    """y = x on another device. The gradient travels back to the device of x.

    With non_blocking the backend may start a copy to the device and not wait for its end.
    """

    def forward(ctx, x: Any, device: Device, non_blocking: bool = False) -> Any:
        ctx.source = ctx.device
        ctx.device, ctx.xp = device, device.xp
        host = ctx.source.backend.to_numpy(x)
        if non_blocking:
            return device.backend.send(host, device.index)
        return device.backend.from_numpy(host, device.index)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Transfer, g, ctx.source)

    def name(ctx) -> str:
        return "ToCopyBackward0"


@tensor_method("to")
def to(self: Tensor, device: Any, non_blocking: bool = False) -> Tensor:
    """The tensor on another device: `x.to("cuda:0")`.

    Returns the tensor itself where nothing changes.
    """
    out = self
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return out


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
    import pickle

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError) as reason:
            return f"{type(reason).__name__}: {reason}"

    array = np.array([1.0, 2.0, 3.0], np.float32)
    copied, shared = tensor(array), from_numpy(array)
    array[0] = 100.0
    print(copied.tolist(), shared.tolist())  # -> [1.0, 2.0, 3.0] [100.0, 2.0, 3.0]
    print(np.shares_memory(shared.numpy(), array), as_tensor(shared) is shared)  # -> True True
    print(np.shares_memory(as_tensor(array).array, array))  # -> True

    x = tensor(2.5)
    print(x.item() * 2, 10 ** int(tensor([2])), [10, 20, 30][tensor(1)], f"{x:.3f}")
    # -> 5.0 100 20 2.500
    print(error(lambda: [10, 20, 30][x]))
    # -> TypeError: only integer tensors of a single element can be converted to an index

    w = tensor([1.0, 2.0], requires_grad=True)
    print(error(w.numpy).partition(" Use")[0])
    # -> RuntimeError: Can't call numpy() on Tensor that requires grad.
    print(w.detach().numpy(), w.numpy(force=True))  # -> [1. 2.] [1. 2.]
    print(np.asarray(copied) + 1)  # -> [2. 3. 4.]

    print(error(tensor, [[[1], [2]], [[3], [4, 5]]]))
    # -> ValueError: expected sequence of length 1 at dim 2 (got 2)
    print(error(tensor, [1, [2]]))
    # -> TypeError: expected only numbers or only sequences at dim 1, got both
    print("NumPy:", np.array([300.0]).astype(np.uint8))  # -> NumPy: [44]
    print(error(tensor, [300.0], dtype=as_dtype("uint8")))
    # -> RuntimeError: value cannot be converted to tinytorch.uint8 without overflow: 300.0
    print(error(tensor, "12"))  # -> TypeError: new(): invalid data type 'str'
    print(error(from_numpy, [1.0]))  # -> TypeError: expected np.ndarray (got list)
    print(error(w.item))  # -> RuntimeError: a Tensor with 2 elements cannot be converted to Scalar

    print(Tensor([1, 2]).dtype, tensor([1, 2]).dtype, Tensor(2, 3).shape)
    # -> tinytorch.float32 tinytorch.int64 tinytorch.Size([2, 3])
    back = pickle.loads(pickle.dumps(w))
    print(back.tolist(), back.requires_grad, back.is_leaf)  # -> [1.0, 2.0] True True
    print(error(pickle.dumps, w * w))
    # -> RuntimeError: only leaf tensors can be pickled: call detach() first

    table = np.ones((2, 3))
    row = from_numpy(table).array[0]
    print("a view knows its storage:", storage_of(row) is table)
    # -> a view knows its storage: True
    print(version_of(table), len(written))  # -> 0 0
    count_write(row)
    print("a write through the view:", version_of(table), version_of(table[1]), len(written))
    # -> a write through the view: 1 1 1
    del table, row
    print("forgotten with the storage:", len(written))  # -> forgotten with the storage: 0
