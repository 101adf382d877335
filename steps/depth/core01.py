"""Step core01: The three branches of the core, joined

Steps 63a to 67c grew three branches from step 62b: devices, the engine, and writing in place. Each
left the other two aside, so no file can do all: a hook on a GPU, or a write into a view of float16
elements on another device. This run joins them, and then finishes the core, module by module.

Most of it is only laid side by side. Three places were changed by more than one branch:

    Function.apply   asks for the device, keeps a list of outputs, and notes a view
    backward_pass    checks the versions of saved values, then runs hooks, then the node
    Tensor           has a device, hooks and a view

And what the engine's branch takes from NumPy, it has to take from the library of a device now: the
ones that a backward pass starts from, the zeros for an output that was not used, the copy that
grad() returns, and the tensors that hooks and functions of your own see. Each of these
lines works on the CPU as it stood, and fails on a GPU.

The demo's library is NumPy under another type. So it is easy to see which arrays came from it: a
plain one means a forgotten `xp`.

Changed: Tensor, Function.apply, check_saved, backward_pass, run_hooks, input_gradients,
run_backward, grad, CustomFunction.apply, assign, storage_of.
Try: write np.asarray in run_hooks, and np.array in grad. Which lines of the demo show it?
"""

import contextlib
import copy
import dataclasses
import heapq
import itertools
import math
import operator
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

    by_numpy = {}
    by_name = {}

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


@dataclasses.dataclass  # it writes __init__, with these three attributes as parameters
class Backend:
    """An array library: its module with NumPy's function names, and the ways from and to NumPy."""

    xp: object
    from_numpy: object
    to_numpy: object


backends = {"cpu": Backend(np, lambda array: array, lambda array: array)}


class Device:
    """A place for tensors. There is one object for each: Device("cpu") is Device("cpu")."""

    known = {}

    def __new__(cls, type):  # what Device(type) returns: a new object, or the one there is
        if isinstance(type, Device):
            return type
        if type not in cls.known:
            device = object.__new__(cls)
            device.type, device.backend, device.xp = type, backends[type], backends[type].xp
            cls.known[type] = device
        return cls.known[type]

    def __str__(self):
        return self.type


def register_backend(type, backend):
    """Make `type` a device that can hold tensors."""
    backends[type] = backend


cpu = Device("cpu")


# The clock of calls and writes. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


class LastWrite:
    """The time of the last write to any storage: 1 before the first one."""

    time = 1


# id of a storage -> [weak reference to it, number of writes, time of the last one]
versions = {}


def storage_of(array):
    """The array that owns the memory of `array`; all views of it have the same one."""
    while hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array):
    """How often the memory of `array` was written in place, through any view."""
    entry = versions.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def modified_since(array, time):
    """Whether the memory of `array` was written after `time`."""
    entry = versions.get(id(storage_of(array)))
    return entry is not None and entry[2] < time


def bump_version(array):
    """Count one write into the memory of `array`. The entry goes when the memory is freed."""
    storage = storage_of(array)
    key = id(storage)
    if key not in versions:
        versions[key] = [weakref.ref(storage, lambda _: versions.pop(key)), 0, 1]
    versions[key][1] += 1
    versions[key][2] = LastWrite.time = next_sequence_nr()


class GradMode:
    """Whether calls are recorded. A class attribute, so that everything shares one switch."""

    enabled = True


def host_array(data, dtype):
    """A new NumPy array with the elements of data; of PyTorch's type where dtype is None."""
    array = np.array(data)
    if dtype is None:
        python_floats = array.dtype.kind == "f" and not hasattr(data, "dtype")
        dtype = Defaults.dtype if python_floats else array.dtype
    return array.astype(numpy_dtype(as_dtype(dtype)), copy=False)  # it is a copy already


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
        if self.requires_grad and GradMode.enabled and not force:
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


class FunctionMode:
    """While `with mode:` is open, each Function.apply becomes mode.call(function, args)."""

    open = []  # the last one sees a call first

    def call(self, function, args):
        """What is to be done for the call; function.apply(*args) goes on with it."""
        return function.apply(*args)

    def __enter__(self):
        FunctionMode.open.append(self)
        return self

    def __exit__(self, *exception):
        FunctionMode.open.remove(self)


def call_through_mode(function, args):
    """Call the innermost mode. What it calls itself meets only the modes outside it."""
    mode = FunctionMode.open.pop()
    try:
        return mode.call(function, args)
    finally:
        FunctionMode.open.append(mode)


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
        if FunctionMode.open:
            return call_through_mode(cls, args)
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
        if needed and GradMode.enabled and cls.differentiable:
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
        if GradMode.enabled and self.requires_grad and self.is_leaf:
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


@tensor_method("mean")
def mean(x, dim=None, keepdim=False):
    """The mean along dim (an int or several), or of all elements."""
    total = sum(x, dim, keepdim)
    return total / (x.numel() // total.numel())


in_place(exp, "exp_")


in_place(add, "add_", "__iadd__")


in_place(sub, "sub_", "__isub__")


in_place(mul, "mul_", "__imul__")


in_place(div, "div_", "__itruediv__")


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


@tensor_method("__pow__")
def pow(x, n):
    return Pow.apply(*operands(x, n))


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


eq = relation(operator.eq, "eq", "__eq__")


gt = relation(operator.gt, "gt", "__gt__")


class Relu(Function):
    """y = x where x > 0, else 0;   dy/dx = 1 where x > 0, else 0, also at x = 0."""

    def forward(ctx, x):
        y = ctx.xp.maximum(x, 0)
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
        y = ctx.xp.zeros(shape, x.dtype)
        ctx.xp.add.at(y, key, x)
        return y

    def backward(ctx, g):
        return ctx.call(Index, g, ctx.key)


@tensor_method("__getitem__")
def getitem(self, key):
    """The elements at key: numbers, slices, arrays or Tensors of numbers, or a tuple of these."""
    if isinstance(key, tuple):
        key = tuple([part.array if isinstance(part, Tensor) else part for part in key])
    return Index.apply(self, key)


class VarMean(Function):
    """v = sum of (x_i - m)^2 / (n - 1) and m = sum of x_i / n;
    dv/dx_i = 2 (x_i - m) / (n - 1),   dm/dx_i = 1 / n."""

    def forward(ctx, x, dim):
        mean = x.mean(axis=dim, keepdims=True)
        ctx.kept, ctx.n = mean.shape, x.size // mean.size
        v, m = sum_along((x - mean) ** 2, dim).squeeze(dim) / (ctx.n - 1), mean.squeeze(dim)
        ctx.save_for_backward(x, m)
        return v, m

    def backward(ctx, gv, gm):
        x, m = ctx.saved
        gv, gm, m = (part.reshape(ctx.kept) for part in (gv, gm, m))
        return gv * (x - m) * (2 / (ctx.n - 1)) + gm * (1 / ctx.n)


def var_mean(x, dim=None):
    """The variance (divided by n - 1) and the mean along dim, or of all elements."""
    return VarMean.apply(x, dim)


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
    return tensor(pairs.reshape(-1)[:n].reshape(size), Defaults.dtype, None, requires_grad)


def randperm(n, generator=default_generator):
    """The integers 0 to n - 1 in random order."""
    return tensor(generator.rng.permutation(n))


class NllLoss(Function):
    """l = log(sum of exp(x_i)) - x_t, the mean over all rows;   dl/dx_i = (p_i - [i = t]) / n."""

    def forward(ctx, x, target):
        m = x.max(axis=1, keepdims=True)
        right = ctx.xp.arange(x.shape[1]) == target.reshape(-1, 1)  # one True in each row
        ctx.save_for_backward(x, m, right)
        z = x - m
        return (ctx.xp.log(ctx.xp.exp(z).sum(axis=1)) - z[right]).mean()

    def backward(ctx, g):
        x, m, right = ctx.saved
        e = ctx.xp.exp(x - m)
        p = e / ctx.call(Sum, e, 1, True)
        return (p - right) * (g / len(right))


def cross_entropy(x, target):
    """The mean over the rows of x [n, classes] of -log p(target); target [n] are integers."""
    return NllLoss.apply(x, target)


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
        if LastWrite.time < time:
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
    as_tensors = create_graph or bool(FunctionMode.open)  # a mode sees the calls of backward too
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
        if any(ctx.needs_input_grad) and GradMode.enabled:
            ctx.sequence_nr, ctx.outputs = next_sequence_nr(), [(out.array.shape, out.array.dtype)]
            out._requires_grad, out._edge = True, (ctx, 0)
        return out

    @property
    def saved_tensors(ctx):
        return ctx.saved

    def gradients(ctx, *g):
        return type(ctx).backward(ctx, *g)


if __name__ == "__main__":
    import types

    class Box(np.ndarray):
        """An array of another library."""

    def boxed(name):
        return lambda *args, **options: getattr(np, name)(*args, **options).view(Box)

    names = "asarray", "array", "zeros", "ones_like", "exp", "broadcast_to"
    library = types.SimpleNamespace(**vars(np) | {name: boxed(name) for name in names})
    register_backend("box", Backend(library, library.array, np.asarray))

    def kinds(*tensors):
        return " ".join(type(x.array).__name__ for x in tensors)

    class Square(CustomFunction):
        """y = x^2;   dy/dx = 2 x."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            print("a function sees:", kinds(x, g))
            return 2.0 * x * g

    # A view is written, a function of our own and a hook follow, all on the other device.
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True, device="box")
    w = tensor([5.0, 6.0], requires_grad=True, device="box")
    table = x * 1.0
    table[1].mul_(w)
    y = Square.apply(table)
    y.register_hook(lambda g: print("a hook sees:", kinds(g)))
    y.sum().backward(retain_graph=True)
    # -> a hook sees: Box
    # -> a function sees: Box Box
    print(x.grad.tolist(), w.grad.tolist())  # -> [[2.0, 4.0], [150.0, 288.0]] [90.0, 192.0]
    print("the gradients:", kinds(x.grad, w.grad))  # -> the gradients: Box Box

    # grad(), and an output that was not used, in float16.
    half = tensor([1.0, 2.0, 6.0], dtype=float16, device="box", requires_grad=True)
    variance, mean = var_mean(half)
    slope = grad(mean, half)[0]
    print(slope.dtype, kinds(slope), slope.tolist())
    # -> tinytorch.float16 Box [0.333251953125, 0.333251953125, 0.333251953125]

    # A saved value that is overwritten is noticed there, too.
    z = half.exp()
    z.sub_(tensor([1.0, 1.0, 1.0], dtype=float16, device="box"))
    try:
        z.sum().backward()
    except RuntimeError as error:
        print(str(error)[:58])  # -> one of the variables needed for gradient computation has b
    print(half._version, z._version)  # -> 0 1
