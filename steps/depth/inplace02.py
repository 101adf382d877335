"""Step inplace02: Writing into views: the layout of the gradient

CopySlices repeats a view's calls on the gradient, and writes zeros into the part that they show.
For this they must show a part of the gradient, and not a copy. Some calls do one or the other:
Reshape makes a view where the elements lie in memory in the right order, and copies otherwise.

Base and gradient have the same shape, but may lie in memory differently:

    base       by columns (a transposed array)     Reshape of its transpose: a view, written
    gradient   by rows                             Reshape of its transpose: a copy, and the
                                                   zeros are written into the copy

The gradient of the old elements is then 11 instead of 10, without an error: the 1 that should have
been replaced by 0 is still in it.

How an array lies in memory is told by its strides. A stride is the distance from one element to the
next along a dimension, in bytes. A matrix of 2 x 2 float64 by rows has strides (16, 8): the next
row is 16 bytes away, the next column 8. By columns it has (8, 16).

So CopySlices notes the order of the base's dimensions, from the longest stride to the shortest:
(0, 1) by rows, (1, 0) by columns. backward copies the gradient in this order, and every call that
made a view of the base makes a view of the copy.

Changed: CopySlices.
Try: copy first, and transpose the copy: `.copy().transpose(order)`. Which line of the demo is wrong
then?
"""

import copy
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.autograd.errors import translate_error
from tinytorch.autograd.modes import call_through_modes, no_grad
from tinytorch.autograd.views import rebase_history, record_view
from tinytorch.core.arguments import checked, not_an_integer
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.dtype import (
    Defaults,
    DType,
    as_dtype,
    bool_,
    can_cast,
    int64,
    numpy_dtype,
    result_type,
)
from tinytorch.core.state import open_modes, state
from tinytorch.core.tensor import Size, Tensor, as_tensor, from_numpy, tensor, tensor_method, wrap
from tinytorch.core.version import (
    bump_version,
    last_write,
    modified_since,
    next_sequence_nr,
    version_of,
)

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
                if x._view is not None:
                    x._view.refresh(x)
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


class CopySlices(Function):
    """base = base with the part that a view shows replaced by `values`, in place.

    The view is given by the calls that lead from the base to it. The gradient of the values is
    that part of the gradient; the gradient of what the base was before is zero there.
    """

    def forward(ctx, base: Any, values: Any, view_calls: tuple, order: Any = None) -> Any:
        ctx.view_calls, ctx.order_of_dims = view_calls, order
        if order is None:
            ctx.order_of_dims = sorted(range(base.ndim), key=lambda dim: -base.strides[dim])
        else:  # a copy that lies in memory as the base does: else the part may be no view of it
            base = ctx.xp.asarray(base).transpose(order).copy()  # a 0-d gradient may be a scalar
            base = base.transpose([order.index(dim) for dim in range(base.ndim)])
        ctx.part_of(base)[...] = values
        return base

    def part_of(ctx, whole: Any) -> Any:
        for function, parameters in ctx.view_calls:
            whole = ctx.call(function, whole, *parameters)
        return whole

    def backward(ctx, g: Any) -> Any:
        rest = ctx.call(CopySlices, g, 0.0, ctx.view_calls, ctx.order_of_dims)
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
    if record and (target._view is not None or not values._requires_grad):
        return overwrite(target, values)
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


def overwrite(target: Tensor, values: Any) -> Tensor:
    """Replace the elements of `target` by `values`, a tensor of its shape and type or a number.

    What the target was before has no part in the result: its gradient is zero.
    """
    if state.grad_enabled and (target.requires_grad or getattr(values, "requires_grad", False)):
        view = target._view
        base, calls = (target, ()) if view is None else (view.base, view.calls)
        rebase_history(base, CopySlices.apply(base, values, calls)._edge)
    else:
        target.array[...] = values.array if isinstance(values, Tensor) else values
    bump_version(target.array)
    return target


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
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    view = True

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        each = zip(x.strides, x.shape, shape[new:], strict=False)
        steps = [step if n == m else 0 if n == 1 else None for step, n, m in each]
        if new < 0 or None in steps:
            raise RuntimeError(
                f"The expanded sizes {list(shape)} must match the existing sizes {list(x.shape)}"
            )
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # Not np.broadcast_to: its result is read-only, and it takes more than twice as long.
        strides = (0,) * new + tuple(steps)
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
        input = input.to(int64)  # integers and booleans are added up as int64
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


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Mul.apply(input, other)
    return Mul.apply(*operands(input, other))


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype and input.array.dtype.kind == "f":
            return Div.apply(input, other)
    return Div.apply(*operands(input, other, floating=True))


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    return Neg.apply(input)


@tensor_method("positive", "__pos__")
def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    if input.dtype is bool_:
        raise RuntimeError("positive() is not supported for bool tensors")
    return input


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


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


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
        leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is None:
        leaf._grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        bump_version(leaf._grad.array)  # a graph may have saved it
        leaf._grad.array += grad


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

    class Reshape(Function):
        """The elements in another shape: a view, if they lie in memory in this order."""

        view = True

        def forward(ctx, x, shape):
            ctx.shape = x.shape
            return x.reshape(shape)

        def backward(ctx, g):
            return ctx.call(Reshape, g, ctx.shape)

    class Transpose(Function):
        view = True

        def forward(ctx, x):
            return x.T

        def backward(ctx, g):
            return ctx.call(Transpose, g)

    class Careless(CopySlices):
        """The form of step 67c."""

        def backward(ctx, g):
            return ctx.call(CopySlices, ctx.call(Clone, g), 0.0, ctx.view_calls), ctx.part_of(g)

    rows = tensor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    print("by rows:", rows.array.strides, "by columns:", rows.array.T.strides)
    # -> by rows: (16, 8) by columns: (8, 16)

    x = from_numpy(np.array([[1.0, 2.0], [3.0, 4.0]]).T).requires_grad_()
    print("strides:", x.array.strides, (x * 1.0).array.strides)  # -> strides: (8, 16) (8, 16)

    base = x * 1.0
    flat = Reshape.apply(Transpose.apply(base), (4,))
    call = Careless.apply(base, flat * 10.0, flat._view.calls)
    call.sum().backward()
    print("careless:", x.grad)  # -> careless: tensor([[11.0, 11.0], [11.0, 11.0]])

    x.grad = None
    base = x * 1.0
    flat = Reshape.apply(Transpose.apply(base), (4,))
    flat.mul_(10.0)
    base.sum().backward()
    print("right:", base, x.grad)
    # -> right: tensor([[10.0, 30.0], [20.0, 40.0]]) tensor([[10.0, 10.0], [10.0, 10.0]])
