"""Step 35: Devices

A GPU has its own memory and its own arrays: CuPy's, which offer NumPy's functions under NumPy's
names. If every np in the engine were a cupy, the engine would run on a GPU. It has to be able to
use either, and nobody wants to read an `if` at every place.

So the question is asked once per call, and it is not "which library?" but "where do the arrays
live?". A Device is a place: cpu, cuda:0, cuda:1. Behind it stands a Backend, which names the array
library (xp), its array class, and the two ways between it and the host. Function.apply reads the
device of the first tensor, and puts ctx.device and ctx.xp = device.xp into the context. That is
all. There are four layers, and each knows only the one directly below:

    Tensor     what a person types
    Function   what a derivative is
    xp         numpy or cupy, decided once per call
    hardware   NumPy's C loops, or CUDA kernels

The proof is in the demo. It makes a device "mirror" from a class of some twenty lines that NumPy
cannot read. Addition, gradients and second derivatives run on it without a change of the framework.

Nothing moves by itself, because a copy takes longer than most computations. A new tensor goes where
device= says, or else to the default device, which set_default_device and `with Device(...):` set;
x.to(...) copies (non_blocking and Backend.send, by which it need not wait, are for step 70). Two
devices in one call are an error that names both. Only a 0-d tensor of the CPU may join others: it
counts as a number.

The trap: a library that can be imported is not yet one that can compute. CuPy can be imported on a
machine without a GPU, and raises at the first array. So the device type cuda is always known, and
without a backend it is an error to make a tensor there.

Changed: Function.apply, tensor, wrap. New: Device, Backend, register_backend, set_default_device,
Transfer, Tensor.to. Module finished: core/device.py.
Try: write np.exp instead of ctx.xp.exp in Exp.forward, and run the demo.
"""

import contextlib
import copy
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import ModuleType
from typing import Any

import numpy as np

from tinytorch.core.dtype import Defaults, DType, as_dtype, numpy_dtype


@dataclass
class Backend:
    """An array library, as the rest of the package sees it.

    Attributes:
        xp: the module with NumPy's function names (numpy, cupy, ...).
        array_type: the class of its arrays.
        from_numpy: (array, index) -> an array on device number `index`.
        to_numpy: array -> numpy.ndarray in the host's memory.
        index_of: array -> number of its device, or None where there is only one.
        send: from_numpy that need not wait until the copy is done; from_numpy where it is None.
        chunk_elements: how many elements an optimizer's formula takes at once, so that they stay in
            the cache; None takes all: on a GPU each operation is a launch.
    """

    xp: ModuleType
    array_type: type
    from_numpy: Callable[[np.ndarray, int | None], Any]
    to_numpy: Callable[[Any], np.ndarray]
    index_of: Callable[[Any], int | None] = lambda array: None
    send: Callable[[np.ndarray, int | None], Any] | None = None
    chunk_elements: int | None = 32768

    def __post_init__(self):
        self.send = self.send or self.from_numpy


# Device types by name. A type without a backend is known, but cannot hold a tensor on this machine.
backends: dict[str, Backend | None] = {
    "cpu": Backend(np, np.ndarray, lambda array, index: array, lambda array: array),
    "cuda": None,
}


# Which device type an array belongs to.
array_types: dict[type, str] = {np.ndarray: "cpu"}


class Device:
    """A place for tensors: `Device("cpu")`, `Device("cuda:1")`, `Device("cuda", 1)`.

    There is one object for each place, so that `is` compares two of them. `device.xp` is the array
    library of the place. Raises RuntimeError for a device string that names no device type.
    """

    known: dict[tuple[str, int | None], "Device"] = {}

    def __new__(cls, type: "str | Device", index: int | None = None) -> "Device":
        if isinstance(type, Device):
            return type
        if not isinstance(type, str):
            raise TypeError(f"Device(): argument 'type' must be str, not {type.__class__.__name__}")
        match = re.fullmatch(r"([a-z]+)(?::(\d+))?", type)
        if match is None:
            raise RuntimeError(f"Invalid device string: '{type}'")
        if match[2] is not None:
            if index is not None:
                raise RuntimeError(f"{type!r} must not include an index: {index} was passed too")
            index = int(match[2])
        if match[1] not in backends:
            raise RuntimeError(
                f"Expected one of {', '.join(backends)} device type at start of device string: "
                f"{match[1]}"
            )
        key = (match[1], index)
        if key not in cls.known:
            device = object.__new__(cls)
            device.type, device.index = key
            cls.known[key] = device
        return cls.known[key]

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there yet: the library is looked up at the first use.
        if name not in ("backend", "xp", "array_type"):
            raise AttributeError(f"'Device' object has no attribute '{name}'")
        backend = backends[self.type]
        if backend is None:
            raise RuntimeError(
                f"No {self.type} device is available: the array library of '{self.type}' is not "
                f"installed, or it found no hardware"
            )
        self.backend, self.xp, self.array_type = backend, backend.xp, backend.array_type
        return getattr(self, name)

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self):
        return Device, (self.type, self.index)

    def __enter__(self) -> "Device":
        default.devices.append(as_device(self))  # `with device("cuda"):` new tensors are there
        return self

    def __exit__(self, *exception: Any) -> None:
        default.devices.pop()


def register_backend(type: str, backend: Backend) -> None:
    """Makes `type` a device type that can hold tensors. Nothing above this line knows its name."""
    backends[type] = backend
    array_types[backend.array_type] = type


def device_of(array: Any) -> Device:
    """The device where `array` lives. TypeError for what is no array of a registered backend."""
    try:
        type = array_types[array.__class__]
    except KeyError:
        raise TypeError(f"not an array of a known device: {array.__class__}") from None
    return Device(type, backends[type].index_of(array))


def as_device(device: "Device | str | int | None") -> Device:
    """What a `device=` argument means: None is the default device, a number is a CUDA device."""
    if device is None:
        return default.devices[-1]
    if isinstance(device, int):
        return Device("cuda", device)
    device = Device(device)
    if device.index is None and device.type != "cpu" and backends[device.type] is not None:
        # "cuda" means the device that is current, which an empty array can tell.
        return device_of(device.backend.from_numpy(np.empty(0, np.float32), None))
    return device


cpu = Device("cpu")


class DefaultDevice(threading.local):
    """Where the new tensors of a thread go: what set_default_device says, or the last `with`."""

    def __init__(self):
        self.devices = [cpu]


default = DefaultDevice()


def set_default_device(device: "Device | str | int | None") -> None:
    """Makes `device` the place of new tensors of this thread; None is the CPU."""
    default.devices[0] = cpu if device is None else as_device(device)


def get_default_device() -> Device:
    return default.devices[-1]


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
        array: the NumPy (or CuPy) array with the elements; the graph does not see changes of it.
        device: the Device where the array lives.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    device: Device
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

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.device.backend.to_numpy(self.array).tolist()

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


def wrap(array: Any, device: Device) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(Tensor)
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
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested lists, or an array.

    Python floats become the default type, ints int64, bools bool; arrays keep theirs.
    """
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
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
    import types

    def error(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError) as reason:
            return f"{type(reason).__name__}: {reason}"

    class Mirror:
        """An array as another library would have it: NumPy can do nothing with it."""

        __array_ufunc__ = None

        def __init__(self, array):
            self.inside = array

        shape = property(lambda self: self.inside.shape)
        ndim = property(lambda self: self.inside.ndim)
        size = property(lambda self: self.inside.size)
        dtype = property(lambda self: self.inside.dtype)

        def __add__(self, other):
            return Mirror(self.inside + getattr(other, "inside", other))

        def __mul__(self, other):
            return Mirror(self.inside * getattr(other, "inside", other))

        def view(self):
            return Mirror(self.inside.view())

        def __array__(self, *args, **kwargs):
            raise TypeError("no silent way to NumPy")

    mirrors = types.SimpleNamespace(
        exp=lambda a: Mirror(np.exp(a.inside)),
        array=lambda a: Mirror(np.array(a.inside)),
        asarray=lambda a: a,
        ones_like=lambda a: Mirror(np.ones_like(a.inside)),
    )
    register_backend(
        "mirror",
        Backend(mirrors, Mirror, lambda array, index: Mirror(array), lambda array: array.inside),
    )

    x = tensor([0.0, 1.0], requires_grad=True, device="mirror")
    b = tensor([2.0, 3.0], requires_grad=True, device="mirror")
    y = exp(x) * b + b
    print(type(y.array).__name__, y.device, y)  # -> Mirror mirror tensor([ 4.       11.154846])
    y.backward(tensor([1.0, 1.0], device="mirror"), create_graph=True)
    print("gradients:", x.grad, b.grad)
    # -> gradients: tensor([2.       8.154846]) tensor([2.       3.718282])
    g, x.grad = x.grad, None
    g.backward(tensor([1.0, 1.0], device="mirror"))
    print("second order:", x.grad)  # -> second order: tensor([2.       8.154846])

    h = tensor([1.0, 2.0], requires_grad=True)
    moved = h.to("mirror") * 3.0
    moved.backward(tensor([1.0, 1.0], device="mirror"))
    print("the gradient travels back:", h.grad, h.grad.device)
    # -> the gradient travels back: tensor([3. 3.]) cpu
    with Device("mirror"):
        inside = tensor(1.0)
    print("made in the block:", inside.device, "- outside:", tensor(1.0).device)
    # -> made in the block: mirror - outside: cpu
    print("a 0-d CPU tensor may join:", tensor(10.0) * x.detach())
    # -> a 0-d CPU tensor may join: tensor([ 0. 10.])
    print(error(lambda: x + h)[-44:])  # -> but found at least two devices, cpu, mirror!

    print(Device("cuda", 1), repr(Device("cuda:1")), Device("cpu") is cpu)
    # -> cuda:1 device(type='cuda', index=1) True
    print(error(Device, "gpu:0").partition(" device type")[0])
    # -> RuntimeError: Expected one of cpu, cuda, mirror
    print(error(np.exp, x.array).partition(":")[0])  # -> TypeError
