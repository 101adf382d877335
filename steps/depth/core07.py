"""Step core07: Catalogue: operations, writes in place and own functions in the package's dress

The runs that follow finish the modules of the core one by one. A finished module is imported from
then on; the other definitions have the forms of this step.

- in_place is a function that takes an operation and returns the method; tensor_method attaches it.
  What it checks, and what it hands over, are functions of their own: check_writable, take_history.
- assign records only where something needs a gradient, also under no_grad().
- true_divide is the name of the operator /; PyTorch's div does a little more.
- A function of your own may save its output. It is kept as a bare array and wrapped anew, as
  Function does it: kept as a tensor, it would close a cycle.
- A function that returns its input returns the same tensor here. Step 64b wraps it anew, and step
  custom02 will again, for several results too.

Changed: all from CopySlices to in_place, the operations, CustomFunction. Renamed: div is
true_divide.
Try: keep the outputs that CustomFunction saves as tensors. Which line of the demo shows the cycle?
"""

import contextlib
import copy
import functools
import itertools
import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import ModuleType
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
    """Make `dtype` the type of new floating point tensors.

    Raises:
        TypeError: it is not a floating point type.
    """
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, its name, a Python type or a NumPy dtype.

    Raises:
        TypeError: it is none of these, or tinytorch does not have the type.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DType.by_name:
        return DType.by_name[dtype]
    try:
        return DType.by_numpy[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"not a tinytorch dtype: {dtype!r}") from None


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy.dtype of `dtype`.

    Raises:
        RuntimeError: `dtype` is bfloat16 and ml_dtypes is not installed.
    """
    if dtype.numpy is None:
        raise RuntimeError(f"{dtype!r} needs the package ml_dtypes: pip install ml_dtypes")
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


@dataclass
class Backend:
    """An array library, as the rest of the package sees it. No other module names one.

    Attributes:
        xp: the module with NumPy's function names (numpy, cupy, ...).
        from_numpy: numpy.ndarray -> an array of this library.
        to_numpy: array -> numpy.ndarray in the host's memory.
    """

    xp: ModuleType
    from_numpy: Callable[[np.ndarray], Any]
    to_numpy: Callable[[Any], np.ndarray]


# Device types by name.
backends: dict[str, Backend] = {
    "cpu": Backend(np, lambda array: array, lambda array: array),
}


class Device:
    """A place for tensors: `Device("cpu")`. `device.xp` is the array library of the place."""

    known: dict[str, "Device"] = {}

    def __new__(cls, type: "str | Device") -> "Device":
        if isinstance(type, Device):
            return type
        if type not in cls.known:
            device = object.__new__(cls)
            device.type, device.backend, device.xp = type, backends[type], backends[type].xp
            cls.known[type] = device
        return cls.known[type]

    def __str__(self) -> str:
        return self.type


def register_backend(type: str, backend: Backend) -> None:
    """Make `type` a device type that can hold tensors."""
    backends[type] = backend


cpu = Device("cpu")


# Global clock for calls and in-place writes. It counts down (0, -1, -2, ...), so that a min-heap
# yields the newest call first. An output is newer than its inputs: the order is topological.
clock = itertools.count(0, -1)


next_sequence_nr = clock.__next__


last_write = [1]  # the time of the last in-place write to any storage; 1 before the first one


# Takes the time of a write from the clock and stores it as the last one, in one call into C. With
# two, another thread could write in between, and its later time be replaced by the earlier one. An
# element of a list is set and read in half the time of an attribute of a class.
note_write = map(functools.partial(operator.setitem, last_write, 0), clock).__next__


# id of a storage -> [weak reference to it, number of writes, time of the last write]
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


def modified_since(array: Any, time: int) -> bool:
    """Whether the memory of `array` was written after `time` on the clock."""
    entry = versions.get(id(storage_of(array)))
    return entry is not None and entry[2] < time


def bump_version(array: Any) -> None:
    """Count one write into the memory of `array`. The entry disappears with the storage."""
    storage = array if array.base is None else storage_of(array)
    key = id(storage)
    entry = versions.get(key)
    if entry is None:
        # A Ctrl-C in a Python function that a weak reference calls is lost: so it calls pop itself.
        forget = functools.partial(versions.pop, key)
        entry = versions.setdefault(key, [weakref.ref(storage, forget), 0, 1])
    entry[1] += 1
    note_write()
    entry[2] = last_write[0]


class ThreadState:
    """The switches that calls ask for."""

    grad_enabled = True
    modes: tuple[Any, ...] = ()  # the last one sees a call first


state = ThreadState()


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    array = np.array(data)
    found = Defaults.dtype if array.dtype.kind == "f" else as_dtype(array.dtype)
    return array.astype(numpy_dtype(found if dtype is None else dtype))


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
    """

    # Make NumPy's operators defer to ours, so that `array + tensor` calls __radd__.
    __array_ufunc__ = None

    # Defaults of what only some tensors change: read here, and not stored in each of them.
    array: Any
    device: Device
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes: (node, output number); None for a leaf
    _view = None  # of a view: how it came from its base
    _hooks = None  # of a leaf: called with each of its gradients
    _after_hooks = None  # of a leaf: called when its grad has been added to
    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None
    several = False

    def __init__(self, data):
        made = tensor(data, dtype=Defaults.dtype)
        self.array, self.device, self.grad = made.array, made.device, None

    @property
    def requires_grad(self) -> bool:
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
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return 0 if self._edge is None else self._edge[1]

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        return wrap(self.array.view(), self.device)

    def detach_(self) -> "Tensor":
        """Take this tensor itself out of the graph.

        Raises:
            RuntimeError: the tensor is a view.
        """
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._requires_grad, self._edge = False, None
        return self

    @property
    def _version(self) -> int:
        return version_of(self.array)

    @property
    def _base(self) -> "Tensor | None":
        return None if self._view is None else self._view.base

    @property
    def shape(self):
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> DType:
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

    def __bool__(self):
        if self.array.size != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.array.item())

    def __float__(self):
        return float(self.array.item())

    def __repr__(self):
        indent = " " * len("tensor(")  # aligns the rows of a matrix
        text = np.array2string(self.numpy(force=True), separator=", ", prefix=indent)
        if self._edge is not None:
            return f"tensor({text}, grad_fn=<{type(self.grad_fn).__name__}>)"
        return f"tensor({text}{', requires_grad=True' if self._requires_grad else ''})"


def wrap(array: Any, device: Device) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array, out.device, out.grad = array, device, None
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


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, an array, a tensor.

    Python floats become the default type, ints int64, bools bool; arrays and tensors keep theirs.
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data.numpy(force=True)
    device = cpu if device is None else Device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array), device)
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
    return wrap(array.view(), cpu)


@contextlib.contextmanager
def set_grad_enabled(flag: bool):
    """Inside this block calls are recorded if flag is true, and not recorded if it is false."""
    before = state.grad_enabled
    state.grad_enabled = flag
    try:
        yield
    finally:
        state.grad_enabled = before


def no_grad():
    """Inside this block no call is recorded."""
    return set_grad_enabled(False)


class FunctionMode:
    """An object that stands between the call of an operation and its Function.

    While `with mode:` is open, each Function.apply becomes mode.call(function, args), which may
    log, count, change the arguments or return a result of its own. function.apply(*args) calls
    the next mode, and in the end the function.
    """

    def call(self, function: type, args: tuple) -> Any:
        return function.apply(*args)

    def __enter__(self) -> "FunctionMode":
        state.modes = (*state.modes, self)
        return self

    def __exit__(self, *exception: Any) -> None:
        state.modes = state.modes[:-1]


def call_through_modes(function: type, args: tuple) -> Any:
    """Call the innermost mode. What it calls itself meets only the modes outside it."""
    stack = state.modes
    state.modes = stack[:-1]
    try:
        return stack[-1].call(function, args)
    finally:
        state.modes = stack


class View:
    """How a view came from its base.

    Attributes:
        base: the tensor that owns the memory; never a view itself.
        base_edge: the base's place in the graph when the view was made or refreshed.
        path: (path of the view that it was made from, call); that of the base is None. To
            copy all calls into a tuple would make a chain of n views take n^2 steps.
    """

    def __init__(self, base: Tensor, path: tuple):
        self.base, self.base_edge, self.path = base, base._edge, path

    @property
    def calls(self) -> list:
        """The (Function, parameters) that lead from the base to the view."""
        calls, path = [], self.path
        while path is not None:
            path, call = path
            calls.append(call)
        return calls[::-1]

    def refresh(self, view: Tensor) -> None:
        """Give `view` the history that its base has received from in-place writes since."""
        if self.base._edge is not self.base_edge:
            refresh_view_grad_fn(view)


def record_view(out: Tensor, source: Tensor, call: tuple) -> None:
    """Note that `out` was made from `source` by `call`, unless the call had to copy."""
    whole = source.array  # most often the owner of the memory, which NumPy notes as the base
    if out.array.base is whole or storage_of(out.array) is storage_of(whole):
        view = source._view
        base, path = (source, None) if view is None else (view.base, view.path)
        out._view = View(base, (path, call))


def refresh_view_grad_fn(tensor: Tensor) -> None:
    """Repeat the calls that made a view, on its base as it is in the graph now.

    Raises:
        RuntimeError: the view came from a user's Function.
    """
    view = tensor._view
    reshaped = view.base._view is not None  # in place, so the calls would not fit any more
    if reshaped or (tensor._edge is not None and tensor._edge[0].takes_tensors):
        name = "a function" if tensor._edge is None else tensor._edge[0].name()
        raise RuntimeError(
            f"the base of a view that {name} returned was changed in place. "
            f"Please clone() the result in its forward."
        )
    before = state.grad_enabled
    state.grad_enabled = True
    try:
        again = view.base
        for function, parameters in view.calls:
            again = function.apply(again, *parameters)
    finally:
        state.grad_enabled = before
    view.base_edge = view.base._edge
    if again._edge is not None:
        rebase_history(tensor, again._edge)


def rebase_history(tensor: Tensor, edge: Any) -> None:
    """Make `tensor` the result of another call: edge is (node, output number)."""
    tensor._requires_grad, tensor._edge = True, edge


new = object.__new__


NOTHING = ()  # what a call has saved that saved nothing


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


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
    view = False  # the result shows the memory of the first input
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
    hooks: dict | None = None  # {output number: hooks on the gradient of this output}
    materialize_grads = True  # backward gets zeros for an output that was not used

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        if state.modes:
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
                if x._view is not None:
                    x._view.refresh(x)
                if x._requires_grad:
                    edge = x._edge or (x, 0)
                x = x.array
            arrays.append(x)
            edges.append(edge)
        ctx.edges, ctx.device, ctx.xp = edges, device, device.xp
        result = cls.forward(ctx, *arrays)
        needed = any(edge is not None for edge in edges)
        record = needed and enabled and cls.differentiable
        if record:
            ctx.sequence_nr = next_sequence_nr()
        if isinstance(result, tuple):
            return ctx.several_outputs(result, record, args)
        device = ctx.device  # a transfer has changed it
        array = ctx.as_array(result)
        out = wrap(array, device)
        if record:
            out._requires_grad, out._edge = True, (ctx, 0)
            ctx.outputs = ((array.shape, array.dtype),)
            ctx.saves = ctx.roles_of(arrays, (array,))
            if cls.elementwise:
                ctx.note_shapes(arrays, array.shape)
        if cls.view:
            record_view(out, args[0], ctx.view_call(0, args))
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
        if ctx.view:
            for number, out in enumerate(outs):
                record_view(out, args[0], ctx.view_call(number, args))
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

    def view_call(ctx, number: int, args: tuple) -> tuple:
        """The (Function, parameters) that leads from the first input to view `number`."""
        return type(ctx), args[1:]

    def note_shapes(ctx, arrays: Sequence, shape: tuple[int, ...]) -> None:
        """Remember the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if grad is not None and shape is not None and grad.shape != shape:
                grad = ctx.call(SumTo, grad, shape)
            sums.append(grad)
        return sums

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

    def saved_arrays(ctx) -> Any:
        return ctx.saved

    def check_saved(ctx) -> None:
        """Raise RuntimeError if a saved array was written in place since."""
        for value in ctx.saved_arrays():
            if hasattr(value, "base") and modified_since(value, ctx.sequence_nr):
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by "
                    f"an inplace operation: [{value.dtype} {list(value.shape)}], saved by "
                    f"{ctx.name()}, was written after that. It is at version {version_of(value)}."
                )

    def name(ctx) -> str:
        return f"{type(ctx).__name__}Backward0"


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


class CopySlices(Function):
    """base = base with the part that a view shows replaced by `values`, in place.

    The view is given by the calls that lead from the base to it. The gradient of the values is
    that part of the gradient; the gradient of what the base was before is zero there.
    """

    def forward(ctx, base: Any, values: Any, view_calls: tuple) -> Any:
        ctx.view_calls = view_calls
        ctx.part_of(base)[...] = values
        return base

    def part_of(ctx, whole: Any) -> Any:
        for function, parameters in ctx.view_calls:
            whole = ctx.call(function, whole, *parameters)
        return whole

    def backward(ctx, g: Any) -> Any:
        rest = ctx.call(CopySlices, ctx.call(Clone, g), 0.0, ctx.view_calls)
        return rest, ctx.part_of(g)

    def name(ctx) -> str:
        return "CopySlices"


def check_writable(target: Tensor) -> None:
    """Raise RuntimeError if a write into `target` would make a gradient or an element wrong."""
    if state.grad_enabled and target.requires_grad:
        if target.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )


def assign(target: Tensor, values: Tensor) -> Tensor:
    """Write `values`, the new result of an operation, into the memory of `target`.

    Raises:
        RuntimeError: the shapes differ, or the result has a type of a higher category.
    """
    if values.array.shape != target.array.shape:
        raise RuntimeError(
            f"output with shape {list(target.array.shape)} doesn't match the broadcast shape "
            f"{list(values.array.shape)}"
        )
    if not can_cast(values.dtype, target.dtype):
        raise RuntimeError(
            f"result type {values.dtype!r} can't be cast to the desired output type "
            f"{target.dtype!r}"
        )
    record = state.grad_enabled and (target.requires_grad or values._requires_grad)
    if record and values.dtype is not target.dtype:
        values = values.to(target.dtype)
    if record and target._view is not None:
        base, calls = target._view.base, target._view.calls
        rebase_history(base, CopySlices.apply(base, values, calls)._edge)
        bump_version(target.array)
        return target
    target.array[...] = values.array
    bump_version(target.array)
    if record and values._requires_grad:
        take_history(target, values)
    return target


def take_history(target: Tensor, values: Tensor) -> None:
    """Make `target` the result of the call that made `values`. If the call saved this result (exp_
    needs it for backward), it keeps the memory of `target` instead, and the second array can go."""
    call = values._edge[0]
    rebase_history(target, values._edge)
    if has_saved(call, values.array):
        call.saved = tuple(target.array if v is values.array else v for v in call.saved)
        call.sequence_nr = next_sequence_nr()  # after the write that made it


def has_saved(call: Function | None, array: Any) -> bool:
    return call is not None and any(value is array for value in call.saved)


def in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of an operation whose first argument is the tensor: add -> add_."""

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        values = function(self, *args, **kwargs)
        if has_saved(values.grad_fn, self.array):  # backward needs what is overwritten now
            values = function(self.clone(), *args, **kwargs)
        return assign(self, values)

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}(), written into this tensor's memory."
    return method


class Expand(Function):
    """y = x repeated to `shape`, without a copy. Backward sums what was repeated."""

    view = True

    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return ctx.xp.broadcast_to(x, shape)

    def backward(ctx, g):
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g: Any) -> Any:
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


class Transfer(Function):
    """y = x on another device. The gradient travels back to the device of x."""

    def forward(ctx, x: Any, device: Device) -> Any:
        ctx.source = ctx.device
        ctx.device, ctx.xp = device, device.xp
        return device.backend.from_numpy(ctx.source.backend.to_numpy(x))

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Transfer, g, ctx.source)


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
) -> Tensor:
    """The tensor with another dtype or on another device: `x.to(float64)`, `x.to("cuda")`,
    `x.to(device, dtype)`, `x.to(other)` for both as `other` has them.

    Returns the tensor itself where nothing changes.

    Raises:
        TypeError: an argument is not a dtype, device or tensor.
    """
    for arg in reversed(args):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (DType, type)):  # or a Python type: float is float64
            dtype = arg
        elif isinstance(arg, (str, Device)):
            device = arg
        elif arg is not None:
            raise TypeError(f"to() received an invalid argument of type {type(arg).__name__}")
    out = self
    if dtype is not None:
        out = cast(out, as_dtype(dtype))
    if device is not None and Device(device) is not out.device:
        out = Transfer.apply(out, Device(device))
    return out


@tensor_method("clone")
def clone(input: Tensor, *, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input, memory_format.order)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a - b

    def backward(ctx, g: Any) -> Any:
        return g, None if ctx.edges[1] is None else -g


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


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x: Any) -> Any:
        return -x

    def backward(ctx, g: Any) -> Any:
        return -g


def number_like(number: Any, dtype: DType) -> Any:
    """The number as one that does not widen an array of this type, as Python's do a bfloat16."""
    return numpy_dtype(dtype).type(number) if dtype is bfloat16 else number


def operands(a: Any, b: Any, floating: bool = False) -> tuple[Any, Any]:
    """Bring two tensors, or a tensor and a number, to the type of their result.

    A number stays a number. With `floating`, integers become the default float type. A NumPy array
    counts as a tensor.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = as_tensor(a), as_tensor(b)
    a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))  # Python's numbers
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
    return Add.apply(*operands(input, other))


@tensor_method("__sub__")
def sub(input: Tensor, other: Any) -> Tensor:
    """input - other, broadcast."""
    return Sub.apply(*operands(input, other))


@tensor_method("__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    return Mul.apply(*operands(input, other))


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    return Div.apply(*operands(input, other, floating=True))


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__rsub__")
def rsub(self: Tensor, other: Any) -> Tensor:
    return sub(other, self)


@tensor_method("__rtruediv__")
def rdiv(self: Tensor, other: Any) -> Tensor:
    return true_divide(other, self)


add_ = tensor_method("add_", "__iadd__")(in_place(add))


mul_ = tensor_method("mul_", "multiply_", "__imul__")(in_place(mul))


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        return g * ctx.saved[0]


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    return Exp.apply(input)


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


@tensor_method("register_hook")
def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> None:
    """Call hook(gradient) whenever a gradient of this tensor is computed.

    What the hook returns, if it is not None, replaces the gradient.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    hooks_of(self).append(hook)


def hooks_of(tensor: Tensor) -> list:
    """The hooks on the gradient of `tensor`: a leaf has its own, others keep them at their node."""
    if tensor.is_leaf:
        tensor._hooks = [] if tensor._hooks is None else tensor._hooks
        return tensor._hooks
    node, number = tensor._edge
    if node.hooks is None:
        node.hooks, node.plain = {}, False
    return node.hooks.setdefault(number, [])


def call_hooks(node: Function, grad: Any) -> Any:
    """Show the gradients of a node's outputs to the hooks on them, which may replace them."""
    grads = grad if node.several else [grad]
    for number, hooks in node.hooks.items():
        if grads[number] is not None:
            grads[number] = run_hooks(hooks, grads[number], node.device)
    return grads if node.several else grads[0]


def run_hooks(hooks: list, grad: Any, device: Any) -> Any:
    """Call each hook with the gradient as a Tensor; what a hook returns replaces it."""
    as_array = not isinstance(grad, Tensor)
    tensor = wrap(device.xp.asarray(grad), device) if as_array else grad
    for hook in hooks:
        answer = hook(tensor)
        tensor = tensor if answer is None else answer
    return tensor.array if as_array else tensor


class Freed:
    """Sentinel for saved values freed by backward; any access raises RuntimeError."""

    def __getitem__(self, number: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first pass has freed what was "
            "saved for it. Specify retain_graph=True in the first call of backward() or grad()."
        )


FREED = Freed()


def edge_of(tensor: Tensor) -> tuple | None:
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


def backward_pass(
    edges: Sequence,
    grads: Sequence,
    keep_graph: bool,
    as_tensors: bool,
    targets: set | None = None,
) -> dict:
    """Carry the gradients `grads` of `edges` to the leaves.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.

    Gradients are plain arrays on their way, or Tensors (`as_tensors`) if they are to be
    differentiated or if a mode wants to see each operation.

    Returns {leaf: gradient}, or, with `targets`, {edge of a target: gradient}.
    """
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    own: set = set()  # those whose gradient is a sum made here: only these are added to in place
    found: dict = {}
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
            elif node in own:
                arrived[node] += grad
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
                if not as_tensors:
                    own.add(node)
        if not heap:
            break
        sequence_nr, node = heappop(heap)
        grad = arrived.pop(node)
        if node.hooks is not None:
            grad = call_hooks(node, grad)
        if targets is not None:
            for number, part in enumerate(grad if node.several else (grad,)):
                if (node, number) in targets:
                    found[node, number] = part
        if last_write[0] < sequence_nr:
            node.check_saved()
        grads = general_step(node, grad, as_tensors)
        edges = node.edges
        if not keep_graph and node.saved is not NOTHING:
            node.saved = FREED
    if targets is None:
        return arrived
    return {**{(leaf, 0): grad for leaf, grad in arrived.items()}, **found}


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
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad, leaf.device)
    if isinstance(grad, Tensor):
        leaf.grad = grad.clone() if leaf.grad is None else leaf.grad + grad
    elif leaf.grad is None:
        leaf.grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        bump_version(leaf.grad.array)  # a graph may have saved it
        leaf.grad.array += grad


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, or ones for scalars."""
    checked = []
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if not output.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if output.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            ones = output.device.xp.ones(output.array.shape, output.array.dtype)
            grad = wrap(ones, output.device)
        checked.append(grad)
    return checked


def as_sequence(value: Any) -> tuple:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


def run_backward(
    tensors: Any,
    grad_tensors: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> dict:
    """backward_pass, from arguments as people write them, with recording set to create_graph."""
    roots = as_sequence(tensors)
    given = as_sequence(grad_tensors) or (None,) * len(roots)
    targets = None if inputs is None else {edge_of(target) for target in inputs}
    keep = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or bool(state.modes)
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        grads = starting_gradients(roots, given)
        grads = grads if as_tensors else [grad.array for grad in grads]
        return backward_pass([edge_of(x) for x in roots], grads, keep, as_tensors, targets)
    finally:
        state.grad_enabled = before


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
    retain_graph keeps what the graph has saved for another backward.
    """
    arrived = run_backward(self, gradient, retain_graph, create_graph, None)
    for leaf, grad in arrived.items():
        accumulate(leaf, grad)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; no .grad is touched.

    An input that the outputs do not depend on gives None with allow_unused=True, and zeros with
    materialize_grads=True. The other arguments are those of `backward`.

    Raises:
        RuntimeError: as `backward`, or an input is unused and neither option is given.
    """
    targets = as_sequence(inputs)
    found = run_backward(outputs, grad_outputs, retain_graph, create_graph, targets)
    results = []
    for number, target in enumerate(targets):
        value = found.get(edge_of(target))
        if value is None:
            if not allow_unused and not materialize_grads:
                raise RuntimeError(
                    f"The differentiated Tensor at index {number} appears to not have been used "
                    f"in the graph. Set allow_unused=True if this is the desired behavior."
                )
            if materialize_grads:
                value = target.device.xp.zeros(target.array.shape, target.array.dtype)
        if value is not None and not isinstance(value, Tensor):
            value = wrap(target.device.xp.array(value), target.device)
        if value is not None and target.is_leaf and target._hooks:
            value = run_hooks(target._hooks, value, target.device)
        results.append(value)
    return tuple(results)


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

    def saved_arrays(ctx) -> list:
        return [getattr(x, "array", x) for x in ctx.saved]

    def gradients(ctx, grads: list) -> Any:
        return type(ctx).backward(ctx, *grads)


if __name__ == "__main__":
    import weakref

    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x / 2.0 - 1.0 / x + (-x) + (2.0 - x) * 3.0
    y.add_(x)
    y *= x
    y.sum().backward()
    print(x.grad.numpy().round(4).tolist())  # -> [[1.0, -4.0], [-9.0, -14.0]]

    print(x.to(float64).dtype, x.to(tensor(1)).dtype, x.to("cpu") is x, x.cpu() is x)
    # -> tinytorch.float64 tinytorch.int64 True True

    class Exponential(CustomFunction):
        """e^x, which saves its own result."""

        @staticmethod
        def forward(ctx, x):
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * out

    z = tensor([0.0, 1.0], requires_grad=True)
    out = Exponential.apply(z)
    (slope,) = grad(out, z, tensor([1.0, 1.0]), create_graph=True)
    (curve,) = grad(slope, z, tensor([1.0, 1.0]))
    print(slope, curve)
    # -> tensor([1.      , 2.718282], grad_fn=<Mul>) tensor([1.      , 2.718282])
    out = Exponential.apply(z)  # no pass has freed what this call has saved
    node = weakref.ref(out.grad_fn)
    del out
    print("the graph is gone:", node() is None)  # -> the graph is gone: True

    for wrong in (
        lambda: z.mul_(z),
        lambda: (z * 1.0).add_(x),
        lambda: tensor([1]).mul_(tensor([0.5])),
        lambda: z.to([1.0]),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(error)
    # -> a leaf Variable that requires grad is being used in an in-place operation.
    # -> output with shape [2] doesn't match the broadcast shape [2, 2]
    # -> result type tinytorch.float32 can't be cast to the desired output type tinytorch.int64
    # -> to() received an invalid argument of type list
