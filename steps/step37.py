"""Step 37: The tensor, finished

Since step 31 each script has carried the growing class Tensor along. Now it is completed and moves
into the package; from step 38 on it is imported. Some two hundred operations are still to come, but
they attach themselves (step 33). The class holds what every tensor is: its shape, its type, its
device, its memory with a version, its place in the graph, and what protects that place:

- a gradient that is assigned must have the shape, type and device of its tensor;
- detach_() takes the tensor itself out of the graph, and x.data = new gives it other memory;
- copy.deepcopy copies a leaf with its memory and its gradient, but not its hooks;
- a tensor's hash is its identity, not its elements, since graphs keep tensors in sets.

x.numpy() is refused only while a graph watches x (_watched): under no_grad it is allowed.

Some attributes are for later steps, since a finished module is not opened again: _inference for
step 39, _output_nr for 40, _base and its kin (and _follow_base) for 41, the hooks for 45.

Printing is a function now, attached as __repr__: all elements as a list, until step 48.

Changed: Tensor, Size. New: tensor_repr, watched, data, detach_, dim and their
kin. Module finished: core/tensor.py.
Try: take the loop out of the grad setter, and at the end give w a gradient of shape (2, 2). The
update w.data = w + w.grad * -0.1 raises no error. What is the shape of w now?
"""

import contextlib
import copy
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from tinytorch.core.data import host_array

from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import Defaults, DType, as_dtype, numpy_dtype
from tinytorch.core.version import count_write, next_order, version_of


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times):
        return Size(tuple(self) * times)

    __rmul__ = __mul__

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

    Operations are not in this class. Each one attaches its methods where it is defined: see
    `tensor_method`.

    `Tensor(2, 3)` is an uninitialised float tensor of that shape, `Tensor([1, 2])` a float tensor
    of these values, as in PyTorch; prefer `tensor(...)`, which keeps the type of its data.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    device: Device
    _requires_grad = False
    _grad_fn = None
    _output_nr = None  # which output of grad_fn this is, where it has several
    _grad = None
    _hooks = None  # called with each gradient of this leaf
    _after_hooks = None  # called when this leaf's grad has been added to
    _inference = False  # made in inference mode
    retains_grad = False
    order = None  # in the graph a leaf is an end: a recorded call has a number
    _base = None  # of a view: the tensor whose memory it shows,
    _base_fn = None  # that tensor's grad_fn when this view was made,
    _view_calls = ()  # and the calls (Function, parameters) that lead from it to this view
    __array_priority__ = 1000  # numpy_array + tensor is our business, not NumPy's

    def __init__(self, *data: Any, device: Any = None):
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            made = tensor(data[0], dtype=Defaults.dtype, device=device)
            self.array, self.device = made.array, made.device
        else:
            self.device = as_device(device)
            shape = data[0] if data and isinstance(data[0], Size) else data or (0,)
            self.array = self.device.xp.empty(shape, numpy_dtype(Defaults.dtype))

    # What a tensor is like.

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
        """The shape, or the length of dimension `dim`. IndexError where there is no such one."""
        if dim is None:
            return self.shape
        if not -max(self.array.ndim, 1) <= dim < max(self.array.ndim, 1) or not self.array.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of "
                f"[{-self.array.ndim}, {self.array.ndim - 1}], but got {dim})"
                if self.array.ndim
                else "Dimension specified as 0 but tensor has no dimensions"
            )
        return self.array.shape[dim]

    def dim(self) -> int:
        return self.array.ndim

    ndimension = dim

    def numel(self) -> int:
        return int(self.array.size)

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.array.itemsize

    @property
    def itemsize(self) -> int:
        return self.array.itemsize

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def is_signed(self) -> bool:
        return self.dtype.is_signed

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    # Its place in the graph.

    @property
    def requires_grad(self) -> bool:
        if self._base is not None:
            self._follow_base()
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
        if value and self._inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor is not allowed.")
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Sets requires_grad in place and returns the tensor. RuntimeError for integer types."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        if self._base is not None:
            self._follow_base()
        return self._grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return self._output_nr or 0

    @property
    def grad(self) -> "Tensor | None":
        return self._grad

    @grad.setter
    def grad(self, grad: "Tensor | None") -> None:
        if grad is not None:
            if not isinstance(grad, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got {grad!r}")
            for name in ("shape", "dtype", "device"):
                mine, theirs = getattr(self, name), getattr(grad, name)
                if mine != theirs:
                    raise RuntimeError(
                        f"assigned grad has data of a different {name}: {theirs} for a tensor "
                        f"with {mine}"
                    )
        self._grad = grad

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        # A view, not the same object: a graph tells saved arrays by who they are.
        out = wrap(self.array.view(), self.device)
        if self._inference:
            out._inference = True
        return out

    def detach_(self) -> "Tensor":
        """Takes this tensor itself out of the graph. RuntimeError for a view."""
        if self._base is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._requires_grad, self._grad_fn, self._output_nr = False, None, None
        return self

    @property
    def data(self) -> "Tensor":
        return self.detach()

    @data.setter
    def data(self, new: "Tensor") -> None:
        if not isinstance(new, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
        self.array, self.device = new.array.view(), new.device

    @property
    def _version(self) -> int:
        return version_of(self.array)

    def is_inference(self) -> bool:
        return self._inference

    # Out of tinytorch, into Python and NumPy.

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy.ndarray that shares the memory where that is possible.

        RuntimeError for a tensor that requires grad, but under no_grad, since no graph sees what is
        written there; TypeError for one on another device. With force=True it is detached and
        copied to the host instead.
        """
        if not force:
            if self._watched():
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

    # Tensors are told apart by who they are: == compares elements, and a graph keeps them in sets.
    __hash__ = object.__hash__

    def __reduce__(self):
        if self.grad_fn is not None:
            raise RuntimeError("only leaf tensors can be pickled: call detach() first")
        return unpickle, (type(self), self.numpy(force=True), self.device, self._requires_grad)

    def __deepcopy__(self, memo: dict) -> "Tensor":
        if self.grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        if id(self) not in memo:
            copy = memo[id(self)] = object.__new__(type(self))
            copy.__dict__.update(self.__dict__)
            for name in ("_base", "_base_fn", "_view_calls", "_hooks", "_after_hooks"):
                copy.__dict__.pop(name, None)
            copy.array = self.array.copy()
            copy._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
        return memo[id(self)]


def unpickle(cls: type, array: np.ndarray, device: Device, requires_grad: bool) -> Tensor:
    """A tensor from what Tensor.__reduce__ wrote; hooks stay behind, as in PyTorch."""
    out = wrap(device.backend.from_numpy(array, device.index), device, cls)
    out._requires_grad = requires_grad
    return out


def wrap(array: Any, device: Device, cls: type = Tensor) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(cls)
    out.array, out.device = array, device
    # Each operation asks for these. Python finds them sooner in an object than in its class.
    out._requires_grad, out._grad_fn, out._output_nr, out._base = False, None, None, None
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


@tensor_method("_watched")
def watched(self: Tensor) -> bool:
    """Whether a graph watches what is done to this tensor now."""
    return self.requires_grad and GradMode.enabled


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


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError) as reason:
            return f"{type(reason).__name__}: {reason}"

    t = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print(t, t.dim(), t.numel(), t.element_size(), t.nbytes)
    # -> tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) 2 6 4 24
    print(t.is_floating_point(), t.is_signed(), t.is_cuda)  # -> True True False
    print(t.shape[:1], t.shape + (4,))  # -> tinytorch.Size([2]) tinytorch.Size([2, 3, 4])
    print(error(t.size, 2))
    # -> IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)

    print(t._version, t.detach()._version)  # -> 0 0
    count_write(t.detach().array)
    print("whoever writes:", t._version)  # -> whoever writes: 1

    w = tensor([1.0, 2.0], requires_grad=True)
    print(error(setattr, w, "grad", tensor([1.0, 2.0, 3.0])))
    # -> ... different shape: tinytorch.Size([3]) for a tensor with tinytorch.Size([2])
    print(error(setattr, w, "grad", 1.0))
    # -> TypeError: assigned grad expected to be a Tensor or None but got 1.0
    with no_grad():
        print("nobody watches:", w.numpy())  # -> nobody watches: [1. 2.]
    y = w * w
    y.detach_()
    print(y.is_leaf, y.requires_grad)  # -> True False
    w.data = w.data * 10.0
    print(w, w.requires_grad, w.is_leaf)  # -> tensor([10.0, 20.0]) True True

    twin = copy.deepcopy(w)
    print(twin, twin.requires_grad, np.shares_memory(twin.array, w.array))
    # -> tensor([10.0, 20.0]) True False
    print(error(copy.deepcopy, w * w).partition(" (")[0])
    # -> RuntimeError: Only Tensors created explicitly by the user
    print(len({w, w.detach(), w}))  # -> 2
