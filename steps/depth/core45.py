"""Step core45: Version counters: writes are counted

A rule needs its saved array as it was at the call. The demo multiplies y by itself and then writes
100 into y's memory. The gradient of x^2 should be [2, 4], and comes out as [200, 200], without an
error. Before such a write can be noticed, it has to be counted.

Where does the count belong? Not to the Tensor: y.detach() and each view are other Tensors on the
same memory. Their arrays are views of one array, which owns the memory: the storage. A view refers
to it as .base, usually at once. With as_strided, which Expand uses, there is an object between
them:

    row  -- .base ----------------> storage      versions[id(storage)] = [..., number of writes]
    wide -- .base --> o -- .base --> storage

A NumPy array cannot be given attributes. So the counts are in a dictionary, with the id of the
storage as the key. A storage that was never written has no entry.

The trap: when an array is freed, Python gives its id to another one, which would inherit the count.
A weak reference does not keep the storage alive, and calls back when it is freed: the entry goes
too.

x._version is PyTorch's name. There the count is in the tensor, and views share one counter.

The operations that write come with step core47. Until then a program that writes into x.array has
to call bump_version itself. Step core46 makes use of the count.

New: versions, storage_of, version_of, bump_version, Tensor._version.
Try: write `forget = int` for the callback, and look at len(versions) at the end of the demo.
(Python also says that it ignored an exception: int cannot take a weak reference.)
"""

import copy
import functools
import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.autograd.errors import translate_error
from tinytorch.autograd.modes import call_through_modes, no_grad, set_grad_enabled
from tinytorch.core.arguments import check_flag, checked, not_an_integer
from tinytorch.core.convert import host_array
from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import Defaults, DType, as_dtype, bool_, int64, numpy_dtype, result_type
from tinytorch.core.state import open_modes, state

# id of a storage -> [weak reference to it, number of writes]
versions: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`; all views of it have the same one."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through any view."""
    entry = versions.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def bump_version(array: Any) -> None:
    """Count one write into the memory of `array`. The entry disappears with the storage."""
    storage = array if array.base is None else storage_of(array)
    key = id(storage)
    entry = versions.get(key)
    if entry is None:
        # A Ctrl-C in a Python function that a weak reference calls is lost: so it calls pop itself.
        forget = functools.partial(versions.pop, key)
        entry = versions.setdefault(key, [weakref.ref(storage, forget), 0])
    entry[1] += 1


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

    # Defaults of what only some tensors change: read here, and not stored in each of them.
    array: Any
    device: Device
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes: (node, output number); None for a leaf
    _grad = None
    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None
    several = False
    __array_priority__ = 1000  # numpy_array + tensor calls Tensor.__radd__, not NumPy's loop

    def __init__(self, *data: Any, device: Any = None):
        if len(data) == 1 and not isinstance(data[0], (int, np.integer, Size)):
            made = tensor(data[0], dtype=Defaults.dtype, device=device)
            self.array, self.device = made.array, made.device
        else:
            self.device = as_device(device)
            shape = data[0] if data and isinstance(data[0], Size) else data or (0,)
            self.array = self.device.xp.empty(shape, numpy_dtype(Defaults.dtype))

    # Its place in the graph.

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise RuntimeError("requires_grad must be a bool")
        if self._edge is not None:
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
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Set requires_grad in place and return the tensor.

        Raises:
            RuntimeError: the element type is not a floating point type.
            TypeError: the argument is not a bool.
        """
        check_flag("requires_grad", requires_grad)
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        return None if self._edge is None else self._edge[0]

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return 0 if self._edge is None else self._edge[1]

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
        return wrap(self.array.view(), self.device)

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

    # What a tensor is like.

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.array.dtype]

    def numel(self) -> int:
        return int(self.array.size)

    nelement = numel

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`.

        Raises:
            IndexError: the tensor has no such dimension.
        """
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

    # Out of tinytorch, into Python and NumPy.

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]

    def item(self) -> int | float | bool:
        """The only element as a Python number.

        Raises:
            RuntimeError: there is not exactly one element.
        """
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy(force=True).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy.ndarray that shares the memory where that is possible.

        With force=True the tensor is detached, and copied to the host if it is elsewhere.

        Raises:
            RuntimeError: it requires grad and calls are recorded: the graph would not see a write.
            TypeError: it is on another device.
        """
        if not force:
            if state.grad_enabled and self.requires_grad:
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

    def __format__(self, spec: str) -> str:
        if self.array.ndim == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    # == compares elements; a tensor in a set or dict is compared by identity.
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
            copy = memo[id(self)] = wrap(self.array.copy(), self.device, type(self))
            copy._requires_grad = self._requires_grad
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
    out._requires_grad, out._edge = False, None
    return out


def tensor_method(*names: str) -> Callable:
    """Attach a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The function that this returns is checked. The method is not, to save a call: its first argument
    is a Tensor already. It is checked if it takes a second one, unless it is an operator.

    Only a program that you run yourself (a step, a notebook) may replace a method of the package.

    Raises:
        RuntimeError: Tensor has this method already.
    """

    def attach(function: Callable) -> Callable:
        written = getattr(function, "fget", function)  # a property hides its function
        safe = checked(function) if written is function else function
        kinds = [each.annotation for each in inspect.signature(written).parameters.values()]
        several = kinds.count(Tensor) > 1
        for name in names:
            if name in Tensor.__dict__ and written.__module__ != "__main__":
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, safe if several and not name.startswith("__") else function)
        return safe

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

    Raises:
        ValueError: a nested sequence is ragged.
        TypeError: there is a string among the data, or requires_grad is not a bool.
        RuntimeError: the type of an object cannot be inferred.
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data.numpy(force=True)
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
    if requires_grad is not False:
        out.requires_grad_(requires_grad)
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

    Raises:
        TypeError: it is not an array, or has an element type that tinytorch does not have.
        ValueError: a stride is negative.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    as_dtype(array.dtype)
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one of the strides of the array is negative, and tensors with negative "
            "strides are not supported. Make a copy first: array.copy()"
        )
    array = np.asarray(array)  # a subclass, such as np.memmap, as a plain array on the same memory
    return wrap(array.view(), device_of(array))


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


def edge_of(tensor: Tensor) -> tuple | None:
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


# Numbers the calls. It counts down (0, -1, -2, ...), so that a min-heap yields the newest first.
next_sequence_nr = itertools.count(0, -1).__next__


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


new = object.__new__

NOTHING = ()  # what a call has saved that saved nothing


class Function:
    """One call of an operation. The same object is `ctx` in forward, grad_fn of the result, and
    the node that a backward pass visits.

    A subclass writes two short methods:

        forward(ctx, *arrays)    arrays (and other parameters) in, array out, or a tuple of them
        backward(ctx, *grads)    gradient of each output in, gradient of each tensor input out

    backward runs on plain arrays, which is fast, or on Tensors when the gradient itself is to be
    differentiated. So its formula uses only what both have: operators, methods with the same
    meaning, functions of `ctx.xp` (numpy, cupy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Declared by subclasses.
    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back
    takes_tensors = False  # backward takes Tensors, always (user-defined functions)

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    sequence_nr: int
    edges: Sequence  # for each argument (node or leaf, output number), or None without gradient
    outputs: Sequence  # (shape, dtype) of each result
    several = False  # the results came as a tuple
    saved: Any = NOTHING
    saves: Sequence[int | None]  # the role of each: i for input i, ~k for output k, None
    input_shapes: list | None = None  # where an input was broadcast
    materialize_grads = True  # backward gets zeros for an output that was not used

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        if open_modes and state.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        enabled = state.grad_enabled
        arrays, edges, device = [], [], None
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x.device is not device:
                    if device is not None:
                        return cls.apply(*on_one_device(args))
                    device = x.device
                if x._requires_grad:
                    edge = x._edge or (x, 0)
                x = x.array
            arrays.append(x)
            edges.append(edge)
        ctx.edges, ctx.device, ctx.xp = edges, device, device.xp
        try:
            result = cls.forward(ctx, *arrays)
        except MemoryError as error:
            raise RuntimeError(f"can't allocate memory: {error}") from error
        except (ValueError, TypeError) as error:
            translated = cls.translate_error(error, arrays)
            if translated is None:
                raise
            raise translated from error
        needed = any(edge is not None for edge in edges)
        record = needed and enabled and cls.differentiable
        if record:
            ctx.sequence_nr = next_sequence_nr()
        if isinstance(result, tuple):
            return ctx.several_outputs(result, record, args)
        device = ctx.device  # a transfer has changed it
        array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out = wrap(array, device)
        if record:
            out._requires_grad, out._edge = True, (ctx, 0)
            ctx.outputs = ((array.shape, array.dtype),)
            ctx.saves = ctx.roles_of(arrays, (array,))
            if cls.elementwise:
                ctx.note_shapes(arrays, array.shape)
        return out

    def save_for_backward(ctx, *values: Any) -> None:
        """Keep arrays (or numbers, or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def several_outputs(ctx, results: tuple, record: bool, args: tuple) -> tuple:
        """The tensors of a call with several results. Those of integer type get no gradient."""
        arrays = [ctx.as_array(result) for result in results]
        outs = [wrap(array, ctx.device) for array in arrays]
        if record:
            ctx.record_outputs(outs)
            inputs = [x.array if isinstance(x, Tensor) else x for x in args]
            ctx.saves = ctx.roles_of(inputs, arrays)
        return tuple(outs)

    def record_outputs(ctx, outs: Sequence) -> None:
        """Make `outs` the results of this call: tensors, or None for what is not one. Those of
        integer type get no gradient."""
        ctx.several = True
        ctx.outputs = [None if x is None else (x.array.shape, x.array.dtype) for x in outs]
        for number, out in enumerate(outs):
            if out is not None and out.dtype.is_floating_point:
                out._requires_grad, out._edge = True, (ctx, number)

    def roles_of(ctx, inputs: Sequence, outputs: Sequence) -> list:
        """Which input or output each saved value is. All of them are alive now, so that `is` tells
        them apart; later an array may be replaced, or its id used again."""
        roles = []
        for value in ctx.saved:
            role = next((i for i, x in enumerate(inputs) if x is value), None)
            if role is None:
                role = next((~k for k, y in enumerate(outputs) if y is value), None)
            roles.append(role)
        return roles

    def note_shapes(ctx, arrays: Sequence, shape: tuple[int, ...]) -> None:
        """Remember the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]

    def sum_back(ctx, grads: tuple) -> list:
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=False):
            if grad is not None and shape is not None and grad.shape != shape:
                as_tensor = isinstance(grad, Tensor)
                grad = grad.sum_to_size(shape) if as_tensor else sum_to(grad, shape)
            sums.append(grad)
        return sums

    @classmethod
    def translate_error(cls, error: Exception, arrays: Sequence) -> Exception | None:
        """PyTorch's error in place of one that the array library raised; None for other errors."""
        return translate_error(error, cls.__name__, arrays)

    # For forward and backward of a subclass.

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
        inner.edges = (None,) * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    # For the engine.

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(*grads)

    def saved_tensor(ctx, number: int) -> Any:
        """Saved value `number` as the tensor that it was. It is wrapped anew: had the call saved
        its output tensor, the two would keep each other alive."""
        value, role = ctx.saved[number], ctx.saves[number]
        if not hasattr(value, "dtype"):
            return value
        out = wrap(ctx.device.xp.asarray(value), ctx.device)
        edge = None if role is None else ctx.edges[role] if role >= 0 else (ctx, ~role)
        if edge is not None:
            out._requires_grad, out._edge = True, edge
        return out

    # For people who look at the graph.

    def name(ctx) -> str:
        """PyTorch's name of the node: MulBackward0."""
        return f"{type(ctx).__name__}Backward0"

    @property
    def next_functions(ctx) -> tuple:
        """((node, output number), ...) for each input; leaves appear as AccumulateGrad."""
        return tuple(
            (None, 0) if edge is None else (as_node(edge[0]), edge[1]) for edge in ctx.edges
        )

    def __repr__(ctx) -> str:
        return f"<{ctx.name()} object at {id(ctx):#x}>"


class AccumulateGrad:
    """How a leaf appears among next_functions: `variable` is the leaf."""

    next_functions = ()

    def __init__(self, variable: Tensor):
        self.variable = variable

    def name(self) -> str:
        return "tinytorch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def as_node(end: Any) -> Any:
    """The node at the end of an edge; a leaf is shown as AccumulateGrad."""
    return AccumulateGrad(end) if isinstance(end, Tensor) else end


def on_one_device(args: tuple) -> list:
    """Bring 0-d CPU tensors to the device of the others.

    Raises:
        RuntimeError: the tensors are on different devices otherwise.
    """
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


def backward_pass(edges: Sequence, grads: Sequence, as_tensors: bool) -> dict:
    """Carry the gradients `grads` of `edges` to the leaves: {leaf: gradient}.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.

    Gradients are plain arrays on their way, or Tensors (`as_tensors`) if they are to be
    differentiated or if a mode wants to see each operation.
    """
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    heap: list = []
    while True:
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None or grad is None:
                continue
            node, number = edge
            if node.several:
                add_part(arrived, heap, node, number, grad)
            elif node not in arrived:
                arrived[node] = grad
                if node.sequence_nr is not None:  # a leaf has none
                    heappush(heap, (node.sequence_nr, node))
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
        if not heap:
            return arrived
        _, node = heappop(heap)
        grad = arrived.pop(node)
        grads = general_step(node, grad, as_tensors)
        edges = node.edges


def add_part(arrived: dict, heap: list, node: Function, number: int, grad: Any) -> None:
    """Add to the gradient of output `number` of a node with several outputs."""
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.sequence_nr, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """The gradients of a node's inputs, from the gradient of its output, or of its outputs."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.materialize_grads:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(*like)
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if node.takes_tensors and not as_tensors:
        grads = [None if g is None else wrap(xp.asarray(g), device) for g in grads]
    on_tensors = as_tensors or node.takes_tensors
    results = node.gradients(grads) if on_tensors else node.backward(*grads)
    if not isinstance(results, tuple):
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.takes_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is None:
        leaf._grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        # Not in place: a graph may have saved the array of leaf.grad.
        leaf._grad = wrap(leaf.device.xp.asarray(leaf._grad.array + grad), leaf.device)


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
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
        gradient = wrap(self.device.xp.ones(self.array.shape, self.array.dtype), self.device)
    as_tensors = create_graph or bool(state.modes)
    start = gradient if as_tensors else gradient.array
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([edge_of(self)], [start], as_tensors).items():
            accumulate(leaf, grad)


class CustomFunction(Function):
    """Base of user-defined differentiable functions; its public name is autograd.Function.

    forward(ctx, ...) and backward(ctx, ...) are static methods that work on Tensors; forward is not
    recorded. backward gets one gradient for each output and returns one for each argument.
    """

    takes_tensors = True

    @classmethod
    def apply(cls, *args: Any) -> Any:
        ctx = new(cls)
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next((x.device for x in args if isinstance(x, Tensor)), cpu)
        ctx.xp = ctx.device.xp
        record = any(ctx.needs_input_grad) and state.grad_enabled
        with no_grad():
            results = cls.forward(ctx, *args)
        several = isinstance(results, tuple)
        outputs = results if several else (results,)
        if record:
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of((), outputs)
            ctx.record_outputs(outputs)
            ctx.several = len(outputs) > 1
            saved = zip(ctx.saved, ctx.saves, strict=True)
            ctx.saved = tuple(x if role is None else x.array for x, role in saved) or NOTHING
        return results

    def save_for_backward(ctx, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where they are `ctx.saved_tensors`."""
        ctx.saved = tensors

    @property
    def saved_tensors(ctx) -> tuple:
        return tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))

    def saved_tensor(ctx, number: int) -> Any:
        """A saved output comes from this node; other saved tensors are as the user saved them."""
        value = ctx.saved[number]
        return value if isinstance(value, Tensor) else Function.saved_tensor(ctx, number)

    def gradients(ctx, grads: list) -> Any:
        return type(ctx).backward(ctx, *grads)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        return g * ctx.saved[0]


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x: Any) -> Any:
        return -x

    def backward(ctx, g: Any) -> Any:
        return -g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a - b

    def backward(ctx, g: Any) -> Any:
        return g, None if ctx.edges[1] is None else -g


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2 = -c / b."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        ctx.saved = (None if ctx.edges[1] is None else a, b)
        return a / b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        ga = g / b
        return ga, None if a is None else -ga * (a / b)


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    return Exp.apply(input)


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


@tensor_method("add", "__add__", "__radd__")
def add(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other, broadcast; the type of the result is `result_type(input, other)`."""
    if alpha != 1:
        other = mul(other, alpha)
    # Two tensors of one type are by far the most common case.
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Add.apply(input, other)
    return Add.apply(*operands(input, other))


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Mul.apply(input, other)
    return Mul.apply(*operands(input, other))


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    return Neg.apply(input)


@tensor_method("sub", "subtract", "__sub__")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other, broadcast.

    Raises:
        RuntimeError: an operand is boolean.
    """
    if alpha != 1:
        other = mul(other, alpha)
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Sub.apply(input, other)
    if isinstance(other, np.ndarray):
        other = as_tensor(other)
    if bool_ in (result_type(input), result_type(other)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported: use `^` or "
            "logical_xor() instead."
        )
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


@tensor_method("positive", "__pos__")
def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    if input.dtype is bool_:
        raise RuntimeError("positive() is not supported for bool tensors")
    return input


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
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # Not np.broadcast_to: its result is read-only, and it takes more than twice as long.
        pairs = zip(x.strides, x.shape, shape[new:], strict=True)
        strides = (0,) * new + tuple([step if n == m else 0 for step, n, m in pairs])
        if x.flags.c_contiguous:
            return np.ndarray(shape, x.dtype, x, 0, strides)
        return np.lib.stride_tricks.as_strided(x, shape, strides)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


def as_integer(number: Any) -> int:
    """An integer argument as Python's int: NumPy's integers, and tensors of one, count too.

    Raises:
        TypeError: it is of another type, such as float, bool or an array.
    """
    if isinstance(number, (bool, np.ndarray)):  # which operator.index would take
        raise not_an_integer(number)
    try:
        return operator.index(number)
    except TypeError:
        raise not_an_integer(number) from None


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """(2, 3) from `f(2, 3)` and from `f((2, 3))`, as PyTorch takes sizes either way.

    Raises:
        TypeError: there are none, as in `f()`; `f(())` has the shape (). Or one is not an integer.
    """
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise TypeError(f"{sys._getframe(1).f_code.co_name}() is missing its sizes")
    return tuple([n if type(n) is int else as_integer(n) for n in sizes])


@tensor_method("expand")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view in which dimensions of size 1 are repeated to `sizes`; -1 keeps a size.

    Raises:
        RuntimeError: a size other than 1 would have to change, or there are too few sizes.
    """
    sizes, shape = as_shape(sizes), input.array.shape
    new = len(sizes) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand({list(shape)}, size={list(sizes)}): the number of sizes provided "
            f"({len(sizes)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(shape)})"
        )
    target = list(sizes)
    for i, size in enumerate(sizes):
        old = shape[i - new] if i >= new else None
        if size == -1 and old is not None:
            target[i] = old
        elif size < 0 or (old not in (None, 1, size)):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({old}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return Expand.apply(input, tuple(target))


@tensor_method("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """A view of `input` in the shape of `other`."""
    return expand(input, other.array.shape)


@tensor_method("broadcast_to")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """A view of `input` broadcast to the shape `size`."""
    return expand(input, size)


@tensor_method("sum_to_size")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sum to the shape `size`, which must broadcast to the shape of `input`.

    Raises:
        RuntimeError: it does not.
    """
    size, shape = as_shape(size), input.array.shape
    extra = len(shape) - len(size)
    if extra < 0 or any(n not in (1, shape[extra + i]) for i, n in enumerate(size)):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}.")
    if not input.is_floating_point() and (size != shape or size == ()):
        input = input.long()  # integers and booleans are added up as int64
    return SumTo.apply(input, size)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all `shapes` are broadcast.

    Raises:
        RuntimeError: the shapes do not fit.
    """
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            if shape[-i] != 1 and result[-i] not in (1, shape[-i]):
                raise RuntimeError(
                    f"Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{', '.join(str(list(s)) for s in shapes)}"
                )
            result[-i] = shape[-i] if shape[-i] != 1 else result[-i]
    return Size(result)


@checked
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors as views of one common shape."""
    shape = broadcast_shapes(*(tensor.array.shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)


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

    def name(ctx) -> str:
        return "ToCopyBackward0"


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


def cast(input: Tensor, dtype: DType, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    if memory_format is preserve_format:
        return Cast.apply(input, numpy_dtype(dtype))
    return Cast.apply(input, numpy_dtype(dtype), memory_format.order)


@tensor_method("to")
def to(
    self: Tensor,
    *args: Any,
    device: Any = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """The tensor with another dtype or on another device: `x.to(float64)`, `x.to("cuda:0")`,
    `x.to(device, dtype)`, `x.to(other)` for both as `other` has them.

    Returns the tensor itself where nothing changes, unless copy=True. A copy lies in memory as
    `memory_format` says.

    Raises:
        TypeError: an argument is not a dtype, device, tensor or flag.
    """
    for arg in reversed(args):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (DType, type)):  # or a Python type: float is float64
            dtype = arg
        elif isinstance(arg, (str, int, Device)) and not isinstance(arg, bool):
            device = arg
        elif isinstance(arg, bool):
            non_blocking, copy = arg, copy or non_blocking
        elif arg is not None:
            raise TypeError(f"to() received an invalid argument of type {type(arg).__name__}")
    out = self
    if dtype is not None:
        out = cast(out, as_dtype(dtype), memory_format)
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return Clone.apply(out, memory_format.order) if copy and out is self else out


@tensor_method("clone")
def clone(input: Tensor, *, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input, memory_format.order)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


@tensor_method("cuda")
def cuda_copy(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


def caster(name: str, dtype: str) -> Callable[[Tensor], Tensor]:
    """The method `name` that casts to `dtype`, such as x.float()."""
    target = as_dtype(dtype)

    def method(self: Tensor, memory_format: MemoryFormat = preserve_format) -> Tensor:
        return cast(self, target, memory_format)

    return tensor_method(name)(method)


CAST_METHODS = "double float half bfloat16 long int short char byte bool"

CAST_TYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"

casters = list(map(caster, CAST_METHODS.split(), CAST_TYPES.split()))


@tensor_method("type_as")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the element type of `other`."""
    return cast(self, other.dtype)


@tensor_method("__array_wrap__")
def array_wrap(self: Tensor, array: Any, context: Any = None, scalar: bool = False) -> Tensor:
    """Makes a Tensor of the result of a NumPy function: np.sin(tensor)."""
    return from_numpy(np.asarray(array))


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    z = y * y
    y.array[...] = 100.0
    z.backward(tensor([1.0, 1.0]))
    print("should be 2 x:", x.grad)  # -> should be 2 x: tensor([200.0, 200.0])

    table = tensor([[1.0, 2.0], [3.0, 4.0]])
    other, row = table.detach(), from_numpy(table.array[0])
    print(table._version, other._version, row._version, len(versions))  # -> 0 0 0 0
    row.array[...] = 5.0
    bump_version(row.array)
    print(table, "version", table._version)  # -> tensor([[5.0, 5.0], [3.0, 4.0]]) version 1
    print(other._version, row._version, len(versions))  # -> 1 1 1
    storage, wide = storage_of(table.array), from_numpy(table.array[:, 0]).expand(3, 2)
    print(row.array.base is storage, wide.array.base is storage)  # -> True False
    print(storage_of(wide.array) is storage, table.clone()._version)  # -> True 0
    bump_version(wide.array)
    print(table._version)  # -> 2

    buffer = np.frombuffer(bytearray(8), np.float32)  # its base is not an array
    print(storage_of(buffer[1:]) is buffer)  # -> True
    ids = {id(np.empty(3)) for _ in range(100)}
    print("100 arrays, fewer ids:", len(ids) < 100)  # -> 100 arrays, fewer ids: True
    del table, other, row, wide, storage
    print("forgotten with the storage:", len(versions))  # -> forgotten with the storage: 0
