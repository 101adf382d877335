"""Step 39: Modes, or someone between the call and the function

The switch of step 18 is one for the whole program: when one thread turns recording off to evaluate
a model, a second thread that is training loses its graph. Now each thread has its own state, and
the switches work as in PyTorch: no_grad, enable_grad and set_grad_enabled are context managers and
decorators, and each can be entered again inside itself.

inference_mode goes further than no_grad. A tensor made under no_grad may be used outside as a
constant. A tensor made under inference_mode can never enter a graph; to try is an error.

And there is a place to stand. Function.apply, which all calls go through, looks at a stack:

    if open_modes and thread.modes:
        return call_through_modes(cls, args)

A FunctionMode on that stack is called instead. It gets the function and its arguments, and may
watch, count, change them, or give an answer of its own; function.apply(*args) goes on to the next
mode, and at last to the function. Half precision, the profiler and the compiler will stand there,
with no further change of the engine. While no mode is open on any thread, it costs one truth test.

While a mode is open, backward runs on Tensors, so that the mode sees its operations, too.

The trap: a mode that computes something itself would be called for its own computation. So while a
mode answers, it is off the stack, together with the modes opened inside it.

One more setting belongs to a thread: whether NumPy warns. 1 / 0 is inf, in silence, as in PyTorch.

For people: grad_fn.name() and next_functions show the graph under PyTorch's names, where a leaf
appears as AccumulateGrad. And the demo follows one call through the layers of step 35. A Function
with differentiable = False is never recorded (comparisons, step 57).

Changed: Function.apply, backward_pass, watched; no_grad and set_grad_enabled are classes. New:
enable_grad, inference_mode, FunctionMode, next_functions. Gone: GradMode. Module finished:
autograd/modes.py.
Try: leave `thread.modes = stack[:-1]` out of call_through_modes. A mode meets itself, until Python
gives up with a RecursionError.
"""

import copy
import functools
import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import next_order


class ThreadState(threading.local):
    """The modes of one thread. Another thread starts with its own, at these values."""

    grad_enabled = True
    inference = False
    modes: tuple["FunctionMode", ...] = ()  # the last one is asked first

    def __init__(self):
        # 1 / 0 is inf and log(-1) is nan, in silence, as in PyTorch. NumPy keeps this per thread.
        np.seterr(all="ignore")


thread = ThreadState()


# Not empty once a thread was in inference mode: only then does anybody look for its tensors.
inference_seen: set[bool] = set()
# All modes that are open, on whatever thread: while there is none, no call has to ask its thread.
open_modes: list["FunctionMode"] = []


class GradSwitch:
    """A context manager and a decorator that sets whether operations are recorded."""

    enabled: bool
    before: tuple = ()  # the values outside: several, for an object that is entered inside itself

    def __enter__(self) -> None:
        self.before = (*self.before, (thread.grad_enabled, thread.inference))
        thread.grad_enabled = self.enabled and not thread.inference

    def __exit__(self, *exception: Any) -> None:
        thread.grad_enabled, thread.inference = self.before[-1]
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
        self.outside = thread.grad_enabled
        thread.grad_enabled = self.enabled

    def __enter__(self) -> None:
        thread.grad_enabled = self.outside  # what __exit__ is to come back to
        GradSwitch.__enter__(self)

    def __call__(self, function: Callable) -> Callable:
        thread.grad_enabled = self.outside  # as a decorator it holds for the calls only
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


class inference_mode(GradSwitch):
    """no_grad, and what is made inside can never enter a graph: RuntimeError where it is tried."""

    def __new__(cls, mode: Any = True):
        switch = object.__new__(cls)
        switch.inference = switch.enabled = mode if isinstance(mode, bool) else True
        return switch(mode) if callable(mode) else switch

    def __enter__(self) -> None:
        GradSwitch.__enter__(self)
        thread.grad_enabled, thread.inference = not self.inference, self.inference
        inference_seen.add(True)


def is_grad_enabled() -> bool:
    return thread.grad_enabled


def is_inference_mode_enabled() -> bool:
    return thread.inference


@tensor_method("_watched")
def watched(self: Tensor) -> bool:
    """Whether a graph watches what is done to this tensor now."""
    return self.requires_grad and thread.grad_enabled


class FunctionMode:
    """Someone who stands between the call of an operation and its Function.

    While `with mode:` is open on this thread, each Function.apply becomes a mode.call(function,
    args), which may look, count, change the arguments or answer itself. function.apply(*args) goes
    on to the next mode, and at last to the function. Autocast, profiler and compiler enter here.
    """

    def call(self, function: type, args: tuple) -> Any:
        return function.apply(*args)

    def __enter__(self) -> "FunctionMode":
        thread.modes = (*thread.modes, self)
        open_modes.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        thread.modes = thread.modes[:-1]
        open_modes.remove(self)


def call_through_modes(function: type, args: tuple) -> Any:
    """Asks the innermost mode; what it calls meets the modes outside it only."""
    stack = thread.modes
    thread.modes = stack[:-1]
    try:
        return stack[-1].call(function, args)
    finally:
        thread.modes = stack


new = object.__new__
NOTHING = ()  # what a call has saved that saved nothing


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Adds up an array over the dimensions along which `shape` was broadcast to its shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


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

    # Declared by subclasses.
    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    order: int
    edges: list  # for each argument: a Function, a leaf Tensor, or None
    output_shape: tuple[int, ...]
    output_id: int  # id of the result's array, to know it again among the saved ones
    saved: Any = NOTHING
    input_shapes: list | None = None  # where an input was broadcast

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward on the arrays of `args`, and records the call if a gradient is wanted."""
        if open_modes and thread.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        ctx.edges = edges = []
        enabled = thread.grad_enabled  # asked now: it silences NumPy where a thread is new
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
        try:
            result = cls.forward(ctx, *arrays)
        except (ValueError, TypeError) as error:
            raise cls.explain(error, arrays) from error
        record = wanted and enabled and cls.differentiable
        if record:
            ctx.order = next_order()
        device = ctx.device  # a transfer has changed it
        out = new(Tensor)
        out.array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out.device = device
        if record:
            out._requires_grad = True
            out._grad_fn = ctx
            ctx.output_shape = out.array.shape
            ctx.output_id = id(out.array)
            if cls.elementwise:
                ctx.note_shapes(arrays, out.array.shape)
        if inference_seen:
            check_inference(out, args, record)
        return out

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def note_shapes(ctx, arrays: list, shape: tuple[int, ...]) -> None:
        """Remembers the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]

    def sum_back(ctx, grads: tuple) -> list:
        """The gradients of inputs that were broadcast, added up where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=False):
            if grad is not None and shape is not None and grad.shape != shape:
                as_tensor = isinstance(grad, Tensor)
                grad = grad.sum_to_size(shape) if as_tensor else sum_to(grad, shape)
            sums.append(grad)
        return sums

    @classmethod
    def explain(cls, error: Exception, arrays: list) -> Exception:
        """NumPy's ValueError or TypeError as PyTorch's RuntimeError, with the shapes in it; a
        NotImplementedError, which is one too, where NumPy has no function for these types."""
        shapes = [tuple(array.shape) for array in arrays if hasattr(array, "shape")]
        if cls.elementwise and len(shapes) > 1:
            a, b = shapes[:2]
            for i in range(1, min(len(a), len(b)) + 1):
                if a[-i] != b[-i] and 1 not in (a[-i], b[-i]):
                    dim = max(len(a), len(b)) - i
                    return RuntimeError(
                        f"The size of tensor a ({a[-i]}) must match the size of tensor b "
                        f"({b[-i]}) at non-singleton dimension {dim} (shapes {list(a)} and "
                        f"{list(b)})"
                    )
        name, listed = cls.__name__.lower(), " and ".join(str(list(shape)) for shape in shapes)
        if any(word in str(error) for word in ("ufunc", "numpy boolean", "Wrong type")):
            dtypes = " and ".join(str(array.dtype) for array in arrays if hasattr(array, "dtype"))
            kind = RuntimeError if "boolean" in str(error) else NotImplementedError
            return kind(f"{name}() is not implemented for {dtypes}")
        return RuntimeError(f"{name}: {error} (shapes {listed})")

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

    def name(ctx) -> str:
        """PyTorch's name of the node: MulBackward0."""
        return f"{type(ctx).__name__}Backward0"

    @property
    def next_functions(ctx) -> tuple:
        """((node, output number), ...) for each input; leaves appear as AccumulateGrad."""
        following = []
        for edge in ctx.edges:
            if isinstance(edge, Tensor):
                following.append((AccumulateGrad(edge), 0))
            else:
                following.append(edge if edge.__class__ is tuple else (edge, 0))
        return tuple(following)

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


def check_inference(out: Tensor, args: tuple, record: bool) -> None:
    """Marks what is made in inference mode; a view is what its base is. RuntimeError where such a
    tensor enters a graph."""
    out._inference = thread.inference if out._base is None else out._base._inference
    if record and any(isinstance(x, Tensor) and x._inference for x in args):
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. To work around you can make a clone "
            "to get a normal tensor and use it in autograd."
        )


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
    (create_graph), or if a mode on this thread wants to see each operation.

    Returns {leaf: gradient}.
    """
    as_tensors = create_graph or bool(thread.modes)
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
        if node.input_shapes is not None:
            grads = node.sum_back(grads)
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


class Expand(Function):
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # What NumPy's broadcast_to gives cannot be written, and takes three times as long.
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


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """(2, 3) from `f(2, 3)` and from `f((2, 3))`, as PyTorch takes sizes either way."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple(int(n) if isinstance(n, Tensor) else n for n in sizes)


@tensor_method("sum_to_size")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sums to the shape `size`, which must broadcast to the shape of `input`."""
    return SumTo.apply(input, as_shape(size))


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


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input."""
    return Neg.apply(input)


@tensor_method("sub", "subtract", "__sub__")
def sub(input: Tensor, other: Any) -> Tensor:
    """input - other."""
    return Sub.apply(input, other)


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other."""
    return Div.apply(input, other)


@tensor_method("__rsub__")
def rsub(self: Tensor, other: Any) -> Tensor:
    return sub(other, self)


@tensor_method("__rtruediv__")
def rdiv(self: Tensor, other: Any) -> Tensor:
    return true_divide(other, self)


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":
    import sys
    import time

    x = tensor([1.0, 2.0], requires_grad=True)
    ones = tensor([1.0, 1.0])
    with no_grad():
        print("no_grad:", (x * x).requires_grad)  # -> no_grad: False
        with enable_grad():
            print("enable_grad:", (x * x).requires_grad)  # -> enable_grad: True

    print("in silence:", (x / 0.0).detach())  # -> in silence: tensor([inf, inf])

    @no_grad()
    def evaluate(n):
        return x * x if n == 0 else evaluate(n - 1)

    print(evaluate(3).requires_grad, is_grad_enabled())  # -> False True
    set_grad_enabled(False)
    print("from now on:", (x * x).requires_grad)  # -> from now on: False
    seen = []
    other = threading.Thread(target=lambda: seen.append((x * x).requires_grad))
    other.start()
    other.join()
    print("in another thread:", seen[0])  # -> in another thread: True
    set_grad_enabled(True)

    class Log(FunctionMode):
        """Says what is called, and on what."""

        def call(self, function, args):
            print(function.__name__, [x.tolist() if isinstance(x, Tensor) else x for x in args])
            # -> Mul [[1.0, 2.0], [1.0, 2.0]]
            # -> Mul [[1.0, 1.0], [1.0, 2.0]]
            # -> Mul [[1.0, 1.0], [1.0, 2.0]]
            # -> Add [[1.0, 2.0], [1.0, 2.0]]
            # -> Add [[1.0, 2.0], 1.0]
            # -> Mul [[2.0, 3.0], 2.0]
            return function.apply(*args)

    class Double(FunctionMode):
        """Turns every sum into the double of it."""

        def call(self, function, args):
            out = function.apply(*args)
            return out * 2.0 if function is Add else out

    with Log():
        y = x * x
        y.backward(ones)
    with Log():
        other = threading.Thread(target=lambda: seen.append(thread.modes))
        other.start()
        other.join()
    print("modes of another thread:", seen[1])  # -> modes of another thread: ()
    with Log(), Double():
        print((x.detach() + 1.0).tolist())  # -> [4.0, 6.0]

    def through_the_layers(action):
        """The functions of this file that an action calls, in order."""
        names = []

        def note(frame, event, argument):
            if event == "call" and frame.f_code.co_filename == __file__:
                names.append(frame.f_code.co_qualname.rpartition(">.")[2])

        sys.setprofile(note)
        action()
        sys.setprofile(None)
        return " > ".join(name for name in names if name not in ("<lambda>", "set_grad_enabled"))

    x.grad = None
    print(through_the_layers(lambda: x * x))
    # -> mul > Function.apply > Mul.forward > Function.note_shapes
    y = x * x
    back = through_the_layers(lambda: y.backward(ones)).split(" > ")
    print([name for name in back if name in ("tensor_backward", "backward_pass", "Mul.backward")])
    # -> ['tensor_backward', 'backward_pass', 'Mul.backward']
    print(y.grad_fn.name(), [f.name() for f, _ in y.grad_fn.next_functions])
    # -> MulBackward0 ['tinytorch::autograd::AccumulateGrad', 'tinytorch::autograd::AccumulateGrad']

    with inference_mode():
        made = x * 2.0
    print(made.is_inference(), made.requires_grad)  # -> True False
    try:
        made * x
    except RuntimeError as reason:
        print(str(reason).partition(". ")[0])
        # -> Inference tensors cannot be saved for backward

    class Look(FunctionMode):
        """Does nothing but stand there."""

    def microseconds(rounds=2000):
        with no_grad():
            start = time.perf_counter()
            for _ in range(rounds):
                x * x
        return (time.perf_counter() - start) / rounds * 1e6

    empty = min(microseconds() for _ in range(5))
    with Look():
        watched = min(microseconds() for _ in range(5))
    print(f"a call takes {empty:.1f} us, with somebody looking {watched:.1f} us")  # -> ...
