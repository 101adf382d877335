"""Step modes03: set_grad_enabled as a statement

Many PyTorch scripts begin with this line:

    torch.set_grad_enabled(False)

In step modes02 the same line does nothing: it makes an object, which would act on entry to a block,
and drops it. No error says so, and the script records everything. PyTorch's set_grad_enabled works
in three ways:

    set_grad_enabled(False)            from now on
    with set_grad_enabled(False):      until the end of the block
    @set_grad_enabled(False)           during each call

The object cannot know which of the three will follow. So __init__ acts at once and notes the value
before. If `with` follows, __enter__ first puts that value back, because it is what the block must
return to. If the object is used as a decorator, __call__ takes back what __init__ did.

The trap is the order in __enter__. GradSwitch.__enter__ notes the present value as the one to come
back to; and this value is the object's own, until it is put back.

(PyTorch's class does the same.)

Changed: set_grad_enabled.
Try: leave the first line of set_grad_enabled.__enter__ out. What remains after the block?
"""

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.autograd.errors import translate_error
from tinytorch.core.convert import host_array
from tinytorch.core.device import Device, as_device, cpu, device_of, silence_numpy
from tinytorch.core.dtype import (
    Defaults,
    DType,
    as_dtype,
    bfloat16,
    int64,
    numpy_dtype,
    result_type,
)
from tinytorch.core.version import (
    bump_version,
    last_write,
    modified_since,
    next_sequence_nr,
    storage_of,
    version_of,
)


class ThreadState(threading.local):
    """The switches of one thread. Every thread starts with its own, at these values."""

    grad_enabled = True
    modes: tuple[Any, ...] = ()  # the last one sees a call first

    def __init__(self):
        silence_numpy()  # here, once for each thread that calls an operation


state = ThreadState()


# The open modes of all threads. While the list is empty, no call has to look at its thread's own.
open_modes: list[Any] = []


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
    __array_priority__ = 1000  # numpy_array + tensor calls Tensor.__radd__, not NumPy's loop

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

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

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

    Raises:
        ValueError: a nested sequence is ragged.
        TypeError: there is a string among the data.
        RuntimeError: the type of an object cannot be inferred.
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


class GradSwitch:
    """A context manager and a decorator that sets whether operations are recorded."""

    enabled: bool
    before: tuple = ()  # the values outside: several, for an object that is entered inside itself

    def __enter__(self) -> None:
        self.before = (*self.before, state.grad_enabled)
        state.grad_enabled = self.enabled

    def __exit__(self, *exception: Any) -> None:
        state.grad_enabled = self.before[-1]
        self.before = self.before[:-1]

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with copy.copy(self):  # another thread may be in the same function
                return function(*args, **kwargs)

        return call


class set_grad_enabled(GradSwitch):
    """`set_grad_enabled(flag)` as a statement holds from now on, as a context until its end."""

    def __init__(self, mode: bool):
        self.enabled = bool(mode)
        self.outside = state.grad_enabled
        state.grad_enabled = self.enabled

    def __enter__(self) -> None:
        state.grad_enabled = self.outside  # what __exit__ is to come back to
        GradSwitch.__enter__(self)

    def __call__(self, function: Callable) -> Callable:
        state.grad_enabled = self.outside  # as a decorator it holds for the calls only
        return (enable_grad if self.enabled else no_grad)(function)


class no_grad(GradSwitch):
    """`with no_grad():` or `@no_grad()`: nothing inside is recorded for backward."""

    enabled = False

    def __new__(cls, function: Callable | None = None):
        # `@no_grad` without parentheses is a decorator too.
        switch = object.__new__(cls)
        return switch if function is None else switch(function)


class enable_grad(GradSwitch):
    """Records inside, also within a no_grad()."""

    enabled = True

    def __new__(cls, function: Callable | None = None):
        switch = object.__new__(cls)
        return switch if function is None else switch(function)


def is_grad_enabled() -> bool:
    return state.grad_enabled


class FunctionMode:
    """An object that stands between the call of an operation and its Function.

    While `with mode:` is open on this thread, each Function.apply becomes mode.call(function,
    args), which may log, count, change the arguments or return a result of its own.
    function.apply(*args) calls the next mode, and in the end the function.
    """

    def call(self, function: type, args: tuple) -> Any:
        return function.apply(*args)

    def __enter__(self) -> "FunctionMode":
        state.modes = (*state.modes, self)
        open_modes.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        state.modes = state.modes[:-1]
        open_modes.remove(self)


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

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if grad is not None and shape is not None and grad.shape != shape:
                grad = ctx.call(SumTo, grad, shape)
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


if __name__ == "__main__":

    class OnEntryOnly(GradSwitch):
        """set_grad_enabled as it was."""

        def __init__(self, mode):
            self.enabled = mode

    x = tensor([1.0, 2.0], requires_grad=True)
    OnEntryOnly(False)
    print("as a statement it did nothing:", (x * x).requires_grad)
    # -> as a statement it did nothing: True
    set_grad_enabled(False)
    print("from now on:", (x * x).requires_grad)  # -> from now on: False
    with set_grad_enabled(True):
        print("inside:", (x * x).requires_grad)  # -> inside: True
    print("after the block:", (x * x).requires_grad)  # -> after the block: False
    set_grad_enabled(True)

    @set_grad_enabled(False)
    def evaluate():
        return (x * x).requires_grad

    print("decorated:", evaluate(), "outside:", is_grad_enabled())
    # -> decorated: False outside: True
