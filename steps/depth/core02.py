"""Step core02: Catalogue: types, devices and writes in the package's dress

The road's forms are right, and the package's are the same with what a library owes its users: types
in the signatures, errors under Raises, and the few members that programs ask for. Six steps put
the joined core into this dress, a part of it each. There is nothing new to understand; skim
them, and read where a name differs from the one that you know.

- DType also answers is_signed and is_complex, and is pickled by its name, so that `is` still holds
  after loading. result_type takes DTypes beside tensors and numbers.
- One object holds the switches: state.grad_enabled is GradMode.enabled, and state.modes is the
  list FunctionMode.open, as a tuple: it is replaced, not changed, so an error cannot leave a mode
  behind.
- The clock and the time of the last write are two names of their own, clock and last_write. A write
  takes the time and notes it in one call, note_write; the comment there says why.

The network's operations, from MatMul to the loss, leave the file: the runs of the operations finish
them. Add, Mul and a few others stay as examples.

Changed: all definitions from DType to host_array, FunctionMode. New: ThreadState, note_write.
Renamed: call_through_mode is call_through_modes.
Try: register a mode whose call() returns None, and add two tensors under it. What is the sum?
"""

import contextlib
import copy
import functools
import heapq
import itertools
import operator
import weakref
from collections.abc import Callable
from dataclasses import dataclass
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
    """An array that can be differentiated.

    array: the elements, in an array of the device. device: the Device where they are.
    grad: what backward() has added up here, or None.
    requires_grad: whether gradients flow to this tensor. grad_fn: the call that made it, or None.
    """

    # Make NumPy's operators defer to ours, so that `array + tensor` calls __radd__.
    __array_ufunc__ = None

    # What most tensors have: read here, and not stored in each of them.
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes; None for a leaf
    _view = None  # of a view: how it came from its base
    hooks = None  # of a leaf: {0: functions that get its gradient}

    # An edge of the graph may end at a leaf, which stands there for a node with one output.
    sequence_nr = None
    outputs = (None,)

    def __init__(self, data):
        self.array, self.device, self.grad = host_array(data, Defaults.dtype), cpu, None

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
        return wrap(self.array.view(), self.device)

    @property
    def _version(self):
        return version_of(self.array)

    @property
    def _base(self):
        return None if self._view is None else self._view.base

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
        return self.device.backend.to_numpy(self.array).tolist()

    def numpy(self, *, force=False):
        """The array itself: a change of one is a change of the other.

        RuntimeError if the tensor requires gradients and calls are recorded, for the graph would
        not see the change. With force=True it is detached first.
        """
        if self.requires_grad and state.grad_enabled and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad: detach() it first")
        if self.device is not cpu and not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy: use cpu()")
        return self.device.backend.to_numpy(self.array)

    def __bool__(self):
        if self.array.size != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.array.item())

    def __float__(self):
        return float(self.array.item())

    def __repr__(self):
        indent = " " * len("tensor(")  # aligns the rows of a matrix
        array = self.device.backend.to_numpy(self.array)
        text = np.array2string(array, separator=", ", prefix=indent)
        if self._edge is not None:
            return f"tensor({text}, grad_fn=<{type(self.grad_fn).__name__}>)"
        return f"tensor({text}{', requires_grad=True' if self._requires_grad else ''})"


def wrap(array, device):
    """A Tensor around an array that was computed: no copy, no check, no history."""
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


def tensor(data, dtype=None, device=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array or Tensor, which keeps its
    type."""
    if isinstance(data, Tensor):
        data = data.numpy(force=True)
    device = cpu if device is None else Device(device)
    out = wrap(device.backend.from_numpy(host_array(data, dtype)), device)
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


def rebase_history(tensor, edge):
    """Make tensor the result of another call: edge is (node, output number)."""
    tensor._requires_grad, tensor._edge = True, edge


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


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph.

    forward(ctx, *arrays) computes on arrays. backward(ctx, g) is one formula for plain arrays and,
    where the gradient is to be differentiated again, for Tensors: it uses operators, methods that
    both have, functions of `ctx.xp` (an array library, or the class Tensor), and `ctx.call`.
    """

    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back
    view = False  # the result may show the memory of the first input
    takes_tensors = False  # whether backward always works on Tensors

    xp = cpu.xp
    device = cpu
    saved = ()
    input_shapes = None  # of an elementwise call: the shape of each input, None for a number
    hooks = None  # of one call: {output number: functions that get the gradient of this output}

    @classmethod
    def apply(cls, *args):
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        if state.modes:
            return call_through_modes(cls, args)
        ctx = cls()
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        arrays = [x.array if isinstance(x, Tensor) else x for x in args]
        # The one question about hardware: it is asked once per call.
        ctx.device = next(x.device for x in args if isinstance(x, Tensor))
        if any(isinstance(x, Tensor) and x.device is not ctx.device for x in args):
            return cls.apply(*on_one_device(args))
        ctx.xp = ctx.device.xp
        result = ctx.forward(*arrays)
        results = result if isinstance(result, tuple) else (result,)
        # The library may give a number where no dimension is left; Transfer sets another device.
        outs = [wrap(ctx.device.xp.asarray(x), ctx.device) for x in results]
        needed = any(edge is not None for edge in ctx.edges)
        if needed and state.grad_enabled and cls.differentiable:
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of(arrays, results)
            ctx.outputs = [(x.array.shape, x.array.dtype) for x in outs]
            if cls.elementwise:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]
            for number, out in enumerate(outs):
                out._requires_grad, out._edge = True, (ctx, number)
        if cls.view:
            record_view(outs[0], args[0], (cls, args[1:]))
        return tuple(outs) if isinstance(result, tuple) else outs[0]

    def save_for_backward(ctx, *values):
        """Keep arrays (or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def roles_of(ctx, inputs, outputs):
        """For each saved value: i if it is input i, ~k if it is output k, None for a constant.

        All of them are alive now, so that `is` tells them apart.
        """
        roles = []
        for value in ctx.saved:
            named = [*enumerate(inputs), *((~k, x) for k, x in enumerate(outputs))]
            roles.append(next((role for role, x in named if x is value), None))
        return roles

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if grad is not None and shape is not None and grad.shape != shape:
                grad = ctx.call(SumTo, grad, shape)
            sums.append(grad)
        return sums

    @property
    def needs_input_grad(ctx):
        """For each argument, whether a gradient has to be computed for it."""
        return [edge is not None for edge in ctx.edges]

    def call(ctx, function, x, *parameters):
        """Another operation inside backward: recorded for a Tensor, only computed for an array."""
        if isinstance(x, Tensor):
            return function.apply(x, *parameters)
        inner = function()
        inner.xp, inner.device = ctx.xp, ctx.device
        inner.edges = [None] * (1 + len(parameters))  # nothing is recorded
        return inner.forward(x, *parameters)

    def forward(ctx, *arrays):
        """Compute an array from the arrays, and keep what backward needs."""
        raise NotImplementedError

    def backward(ctx, *g):
        """Compute a gradient for each input from those of the outputs: one, or a tuple."""
        raise NotImplementedError

    def gradients(ctx, *g):
        """What backward returns on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(*g)

    def saved_tensor(ctx, number):
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


def on_one_device(args):
    """args with the 0-d tensors of the CPU on the device of the others, or RuntimeError."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    # The devices of the others: the keys of a dict, which are in order and each there once.
    others = {x.device: None for x in tensors if x.ndim > 0 or x.device is not cpu}
    if len(others) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(map(str, others))}!"
        )
    (device,) = others
    return [x.to(device) if isinstance(x, Tensor) else x for x in args]


def check_saved(node):
    """RuntimeError if an array that the call saved was written after the call."""
    for value in node.saved:
        if hasattr(value, "base") and modified_since(value, node.sequence_nr):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {list(value.shape)}, saved by {type(node).__name__}, is at "
                f"version {version_of(value)}"
            )


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
    recorded = state.grad_enabled and (target.requires_grad or values.requires_grad)
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
    target.array[...] = values.array
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
        if state.grad_enabled and self.requires_grad and self.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        values = operation(self, *args)
        if has_saved(values.grad_fn, self.array):  # backward needs what would be overwritten
            values = operation(self.clone(), *args)
        return assign(self, values)


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

    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g):
        return ctx.call(Expand, g, ctx.shape)


class Clone(Function):
    """y = x, in memory of its own;   dy/dx = 1."""

    def forward(ctx, x):
        return ctx.xp.array(x)

    def backward(ctx, g):
        return g


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x, dtype):
        ctx.dtype = x.dtype
        return x.astype(dtype)

    def backward(ctx, g):
        return ctx.call(Cast, g, ctx.dtype)


class Transfer(Function):
    """y = x on another device. The gradient goes back to the device of x."""

    def forward(ctx, x, device):
        ctx.source, ctx.device = ctx.device, device
        return device.backend.from_numpy(ctx.source.backend.to_numpy(x))

    def backward(ctx, g):
        return ctx.call(Transfer, g, ctx.source)


@tensor_method("to")
def to(x, where):
    """x as another dtype, or on another device; x itself where nothing changes."""
    if not isinstance(where, DType):
        device = Device(where)
        return x if x.device is device else Transfer.apply(x, device)
    if x.dtype is where:
        return x
    if not where.is_floating_point:
        x = x.detach()  # an integer type ends the graph
    return Cast.apply(x, numpy_dtype(where))


@tensor_method("clone")
def clone(x):
    """A copy with memory of its own. The gradient flows through."""
    return Clone.apply(x)


@tensor_method("cpu")
def to_cpu(x):
    return x.to(cpu)


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a, b):
        return a + b

    def backward(ctx, g):
        return g, g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a, b):
        return a - b

    def backward(ctx, g):
        return g, -g


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


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2."""

    elementwise = True

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b

    def backward(ctx, g):
        a, b = ctx.saved
        return g / b, -g * a / (b * b)


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x):
        return -x

    def backward(ctx, g):
        return -g


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


@tensor_method("__truediv__")
def div(a, b):
    return Div.apply(*operands(a, b, floating=True))


@tensor_method("__add__", "__radd__")
def add(a, b):
    return Add.apply(*operands(a, b))


@tensor_method("__sub__")
def sub(a, b):
    return Sub.apply(*operands(a, b))


@tensor_method("__mul__", "__rmul__")
def mul(a, b):
    return Mul.apply(*operands(a, b))


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__rsub__")
def rsub(self, other):
    return sub(other, self)


@tensor_method("__rtruediv__")
def rdiv(self, other):
    return div(other, self)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x):
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * y


@tensor_method("exp")
def exp(x):
    return Exp.apply(x)


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


in_place(exp, "exp_")


in_place(add, "add_", "__iadd__")


in_place(sub, "sub_", "__isub__")


in_place(mul, "mul_", "__imul__")


in_place(div, "div_", "__itruediv__")


@tensor_method("register_hook")
def register_hook(self, hook):
    """Call hook(gradient) for each gradient of this tensor; what it returns takes its place."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node, number = edge_of(self)
    node.hooks = {} if node.hooks is None else node.hooks
    node.hooks.setdefault(number, []).append(hook)


def run_hooks(node, grads, as_tensors):
    """Show the gradients of a node or leaf to its hooks, as Tensors."""
    for number, hooks in (node.hooks or {}).items():
        if grads[number] is not None:
            grad = grads[number]
            if not as_tensors:
                grad = wrap(node.device.xp.asarray(grad), node.device)
            for hook in hooks:
                answer = hook(grad)
                grad = grad if answer is None else answer
            grads[number] = grad if as_tensors else grad.array


class Freed:
    """Stands where saved values were, when backward has freed them: each access is an error."""

    def __iter__(self):
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first pass has freed what was "
            "saved for it. Specify retain_graph=True in the first call of backward() or grad()."
        )

    __len__ = __getitem__ = __iter__


def edge_of(tensor):
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


def backward_pass(edges, grads, keep_graph, as_tensors, targets=()):
    """Carry gradients from the edges of the outputs to the leaves: {edge: gradient}.

    The edge of a leaf is (leaf, 0). targets are other edges whose gradients are to be kept.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.
    """
    arrived = {}  # node or leaf -> the gradient of each of its outputs
    heap, found = [], {}
    while True:
        # Not strict: an argument that is a number, such as the exponent of x ** n, has no gradient.
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None or grad is None:
                continue
            node, number = edge
            if node not in arrived:
                arrived[node] = [None] * len(node.outputs)
                if node.sequence_nr is not None:  # a leaf has none
                    heapq.heappush(heap, (node.sequence_nr, node))
            # Not in place: Add, for one, hands the same array to both of its inputs.
            earlier = arrived[node][number]
            arrived[node][number] = grad if earlier is None else earlier + grad
        if not heap:
            for leaf, grads in arrived.items():
                run_hooks(leaf, grads, as_tensors)
            return {(leaf, 0): grads[0] for leaf, grads in arrived.items()} | found
        time, node = heapq.heappop(heap)
        if last_write[0] < time:
            check_saved(node)
        grads = arrived.pop(node)
        run_hooks(node, grads, as_tensors)
        found |= {(node, i): g for i, g in enumerate(grads) if (node, i) in targets}
        grads = input_gradients(node, grads, as_tensors)
        edges = node.edges
        if node.saved != () and not keep_graph:
            node.saved = Freed()


def input_gradients(node, grads, as_tensors):
    """The gradients of a node's inputs, from those of its outputs: None where none has arrived."""
    xp, device = node.device.xp, node.device
    for number, (shape, dtype) in enumerate(node.outputs):
        if grads[number] is None:
            zeros = xp.zeros(shape, dtype)
            grads[number] = wrap(zeros, device) if as_tensors else zeros
    if node.takes_tensors and not as_tensors:
        grads = [wrap(xp.asarray(g), device) for g in grads]
    on_tensors = as_tensors or node.takes_tensors
    results = node.gradients(*grads) if on_tensors else node.backward(*grads)
    if not isinstance(results, tuple):
        results = (results,)
    if node.takes_tensors and not as_tensors:
        results = tuple(None if x is None else x.array for x in results)
    return results if node.input_shapes is None else node.sum_back(results)


def as_list(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def accumulate(leaf, grad):
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf.grad = grad.clone() if leaf.grad is None else leaf.grad + grad  # recorded
    elif leaf.grad is None:
        # A copy: Add hands the same array to both inputs.
        leaf.grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        leaf.grad.array += grad
        bump_version(leaf.grad.array)  # a graph may have saved it


def run_backward(tensors, grads, retain_graph, create_graph, targets=()):
    """One pass from several tensors; for a grad of None the tensor has one element, and it is 1."""
    edges, start = [], []
    for number, (x, grad) in enumerate(zip(tensors, grads, strict=True)):
        if not x.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if x.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            grad = wrap(x.device.xp.ones_like(x.array), x.device)
        edges.append(edge_of(x))
        start.append(grad)
    keep_graph = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or bool(state.modes)  # a mode sees the calls of backward too
    start = start if as_tensors else [grad.array for grad in start]
    with set_grad_enabled(create_graph):
        return backward_pass(edges, start, keep_graph, as_tensors, targets)


@tensor_method("backward")
def tensor_backward(self, gradient=None, retain_graph=None, create_graph=False):
    """Add to the grad of each leaf behind this tensor the derivative with respect to it.

    gradient is that of some number with respect to this tensor; a single element may leave it out,
    which means 1. With create_graph the gradients are recorded, and can be differentiated.
    retain_graph keeps what the graph has saved, for another backward.
    """
    for (leaf, _), grad in run_backward([self], [gradient], retain_graph, create_graph).items():
        accumulate(leaf, grad)


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None
):
    """The gradients of the outputs' sum by the inputs, which may be any tensors of the graph.

    No .grad is touched. An input that was not used is an error; allow_unused gives None for it.
    """
    outputs, inputs = as_list(outputs), as_list(inputs)
    given = [None] * len(outputs) if grad_outputs is None else as_list(grad_outputs)
    targets = {edge_of(x) for x in inputs}
    found = run_backward(outputs, given, retain_graph, create_graph, targets)
    results = []
    for number, x in enumerate(inputs):
        value = found.get(edge_of(x))
        if value is None and not allow_unused:
            raise RuntimeError(f"input {number} was not used in the graph: allow_unused=True?")
        if value is not None and not isinstance(value, Tensor):
            # A copy: Add hands the same array to both inputs.
            value = wrap(x.device.xp.array(value), x.device)
        results.append(value)
    return tuple(results)


class CustomFunction(Function):
    """A function of a program's own. forward(ctx, ...) and backward(ctx, ...) are static methods on
    Tensors. forward is not recorded; backward returns a gradient for each argument."""

    takes_tensors = True

    @classmethod
    def apply(cls, *args):
        ctx = cls()
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next(x.device for x in args if isinstance(x, Tensor))
        with no_grad():
            out = cls.forward(ctx, *args)
        out = wrap(out.array, out.device) if any(out is x for x in args) else out
        if any(ctx.needs_input_grad) and state.grad_enabled:
            ctx.sequence_nr, ctx.outputs = next_sequence_nr(), [(out.array.shape, out.array.dtype)]
            out._requires_grad, out._edge = True, (ctx, 0)
        return out

    @property
    def saved_tensors(ctx):
        return ctx.saved

    def gradients(ctx, *g):
        return type(ctx).backward(ctx, *g)


if __name__ == "__main__":
    import pickle

    print(int8.is_signed, uint8.is_signed, bool_.is_signed, float32.is_complex)
    # -> True False False False
    print(pickle.loads(pickle.dumps(float16)) is float16)  # -> True
    print(result_type(int64, 1.5), result_type(tensor([1.0]), float64), can_cast(float32, int64))
    # -> tinytorch.float32 tinytorch.float64 False
    print(promote_types(float16, bfloat16), promote_types(uint8, int8), as_dtype("int64"))
    # -> tinytorch.float32 tinytorch.int16 tinytorch.int64
    print(host_array([1, 2], None).dtype, host_array(np.float64(2.5), None).dtype)
    # -> int64 float64
    set_default_dtype(float64)
    print(get_default_dtype(), tensor(1.5).dtype, number_dtype(True), number_dtype(3))
    # -> tinytorch.float64 tinytorch.float64 tinytorch.bool tinytorch.int64
    set_default_dtype(float32)
    for wrong in (lambda: set_default_dtype(int64), lambda: as_dtype("text"), result_type):
        try:
            wrong()
        except (TypeError, ValueError) as error:
            print(error)
    # -> only floating-point types are supported as the default type, got tinytorch.int64
    # -> not a tinytorch dtype: 'text'
    # -> result_type() needs at least one tensor or number

    class Names(FunctionMode):
        def call(self, function, args):
            print(function.__name__, len(state.modes), "modes outside")
            return function.apply(*args)

    x = tensor([1.0, 2.0], requires_grad=True)
    with FunctionMode(), Names():
        y = x * x  # -> Mul 1 modes outside
    with no_grad():
        print(state.modes, state.grad_enabled, (x * x).requires_grad)  # -> () False False
    before = last_write[0]
    z = x * 1.0
    z.mul_(x)
    print(z._version, last_write[0] < before, modified_since(z.array, before))  # -> 1 True True
    register_backend("box", backends["cpu"])
    print(Device("box"), Device("box") is Device(Device("box")))  # -> box True
