"""Step 42: Operands of two types, and a straight way for two of one

Step 34 stated the rule; now it is applied. NumPy has a rule of its own, and NumPy does the adding:
int64 plus float32 became float64, in the demo of step 34 and in the engine as well. So the operands
are brought to the type of the result before NumPy sees them:

    operands(a, b)      two tensors: cast both to result_type(a, b)
                        tensor and number: cast the tensor if need be; the number stays a number

A number stays a number for two reasons. No array has to be made of it. And NumPy 2 lets a Python
float leave a float32 array as it is, but not a NumPy float64 or a 0-d float64 array: with one of
these the result is float64, without a word, and so is everything computed from it. bfloat16 is the
exception: NumPy does not know the type, and would answer with float32 to a Python float.

Cast is an operation like any other. Its gradient goes back in the type of its input: a float32
weight gets a float32 gradient, even if the loss was computed in float64. A cast to integers cuts
the graph: it is a step function, whose slope is 0 wherever it has one.

Mostly both operands are plain tensors of one type. Then there is nothing to settle, and little to
ask. Function.apply is made for any number of arguments, and its loops and lists take longer than
NumPy's product of ten numbers. apply_directly writes out what it does for one or two operands, line
by line. Two ways to one end are a price; what it buys is a third of the time of a small operation.

A NumPy array in a formula counts as a tensor, on either side of an operator. np.sin(x) gives a
tensor as well (NumPy asks __array_wrap__ how to wrap its result), but no graph sees it. Division of
integers gives floats, and integers are summed as int64. Subtraction of booleans is refused. x.to()
takes a type, a device, both, or another tensor to be like.

The trap is `x.array * np.float64(2)`: float64 again. x * np.float64(2) is safe, since operands
makes a Python number of it.

Changed: add, mul, sub, true_divide, to, sum_to_size. New: Cast, operands, apply_directly, +x,
array_wrap, x.double() and its kin. Modules finished: ops/broadcast.py, ops/conversion.py,
autograd/direct.py.
Try: let operands return (a, b) as they are, and see which lines change.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.autograd.modes import inference_seen, open_modes, set_grad_enabled, thread
from tinytorch.autograd.node import Function, check_inference, edge_of, follow_base, new, sum_to
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.dtype import Defaults, DType, as_dtype, bool_, numpy_dtype, result_type
from tinytorch.core.tensor import Size, Tensor, as_tensor, from_numpy, tensor, tensor_method, wrap
from tinytorch.core.version import Writes, next_order

# The classes of a second operand: none, a tensor that is no Parameter, a number.
DIRECT = {Tensor, float, int, type(None)}


def apply_directly(function: type[Function], a: Any, b: Any = None) -> Tensor:
    """function.apply(a) or function.apply(a, b), for a differentiable operation that has one result
    and makes no view. `b` may be a number.

    For plain tensors it does the same in straight lines. Of a small operation the loop over the
    arguments, their lists and the questions that are not asked here take a third of the time.
    """
    if a.__class__ is not Tensor or b.__class__ not in DIRECT:
        return function.apply(a, b)
    device, enabled = a.device, thread.grad_enabled  # asked now: it silences NumPy on a new thread
    if open_modes or (b.__class__ is Tensor and b.device is not device):
        return function.apply(a) if b is None else function.apply(a, b)
    ctx = new(function)
    if device is not cpu:
        ctx.device, ctx.xp = device, device.xp
    edge = edge_b = None
    if a._base is not None:
        follow_base(a)
    if a._requires_grad:
        edge = a if a._grad_fn is None else a._grad_fn
        if a._output_nr is not None:
            edge = (edge, a._output_nr)
    try:
        if b.__class__ is not Tensor:
            ctx.edges, rest = ((edge,), ()) if b is None else ((edge, None), (b,))
            array = function.forward(ctx, a.array, *rest)
        else:
            if b._base is not None:
                follow_base(b)
            if b._requires_grad:
                edge_b = b if b._grad_fn is None else b._grad_fn
                if b._output_nr is not None:
                    edge_b = (edge_b, b._output_nr)
            ctx.edges = (edge, edge_b)
            array = function.forward(ctx, a.array, b.array)
    except (ValueError, TypeError) as error:
        raise function.explain(error, [x.array for x in (a, b) if x.__class__ is Tensor]) from error
    array = array if array.__class__ is device.array_type else ctx.as_array(array)
    out = new(Tensor)  # and filled as by wrap
    out.array, out.device = array, device
    out._requires_grad, out._grad_fn, out._output_nr, out._base = False, None, None, None
    record = enabled and (edge is not None or edge_b is not None)
    if record:
        ctx.order = next_order()
        ctx.outputs = ((array.shape, array.dtype, id(array)),)
        out._requires_grad, out._grad_fn = True, ctx
        if b.__class__ is Tensor and a.array.shape != b.array.shape:
            ctx.note_shapes((a.array, b.array), array.shape)
    if inference_seen:
        check_inference(out, (a, b), record)
    return out


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
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    heap: list = []
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if edge.__class__ is tuple:
                add_part(arrived, heap, edge, grad)
            elif edge not in arrived:
                arrived[edge] = grad
                order = edge.order
                if order is not None:  # a leaf has none
                    heappush(heap, (order, edge))
            elif edge in ours:
                arrived[edge] += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
                if not as_tensors:
                    ours.add(edge)
        if not heap:
            break
        order, node = heappop(heap)
        grad = arrived.pop(node)
        if Writes.last < order:
            node.check_saved()
        if node.plain and not as_tensors:
            grads = node.backward(grad)
        else:
            grads = general_step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
    return arrived


def add_part(arrived: dict, heap: list, edge: tuple, grad: Any) -> None:
    """Adds the gradient of one result of a call that has several."""
    node, number = edge
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.order, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """One node's backward where it is not a plain array formula of a single gradient."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.fill_missing:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(like[0], like[1])
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if as_tensors:
        results = node.gradients(grads)
    elif node.on_tensors:
        results = node.gradients(
            [None if g is None else wrap(xp.asarray(g), device) for g in grads]
        )
    else:
        results = node.backward(*grads)
    if results.__class__ is not tuple:
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.on_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


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

    view = True

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


@tensor_method("expand")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view in which dimensions of size 1 are repeated to `sizes`; -1 keeps a size.

    RuntimeError where another size would have to change, or where there are too few sizes.
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
    """Sums to the shape `size`, which must broadcast to the shape of `input`: RuntimeError."""
    size, shape = as_shape(size), input.array.shape
    extra = len(shape) - len(size)
    if extra < 0 or any(n not in (1, shape[extra + i]) for i, n in enumerate(size)):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}.")
    if not input.is_floating_point() and (size != shape or size == ()):
        input = input.long()  # integers and booleans are added up as int64
    return SumTo.apply(input, size)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all `shapes` are broadcast; RuntimeError where they do not fit."""
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


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors as views of one common shape."""
    shape = broadcast_shapes(*(tensor.array.shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)


class Clone(Function):
    """y = a copy of x with memory of its own;  dy/dx = 1. Order K keeps transposed ones so."""

    def forward(ctx, x: Any, order: str = "K") -> Any:
        return x.copy("C" if 0 in x.strides else order)  # 0 in an expanded one, not in its copy

    def backward(ctx, g: Any) -> Any:
        return g


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x: Any, dtype: Any) -> Any:
        ctx.dtype = x.dtype
        return x.astype(dtype, "C" if 0 in x.strides else "K")

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


def cast(input: Tensor, dtype: DType) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    return Cast.apply(input, numpy_dtype(dtype))


@tensor_method("to")
def to(
    self: Tensor,
    *args: Any,
    device: Any = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Tensor:
    """The tensor with another dtype or on another device: `x.to(float64)`, `x.to("cuda:0")`,
    `x.to(device, dtype)`, `x.to(other)` for both as `other` has them.

    Returns the tensor itself where nothing changes, unless copy=True.
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
        out = cast(out, as_dtype(dtype))
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return Clone.apply(out) if copy and out is self else out


@tensor_method("clone")
def clone(input: Tensor) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


@tensor_method("cuda")
def cuda_copy(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


def caster(name: str, dtype: str) -> Callable[[Tensor], Tensor]:
    """The method `name` that casts to `dtype`, such as x.float()."""
    target = as_dtype(dtype)
    return tensor_method(name)(lambda self: cast(self, target))


CAST_METHODS = "double float half bfloat16 long int short char byte bool"
CAST_TYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"
casters = list(map(caster, CAST_METHODS.split(), CAST_TYPES.split()))


@tensor_method("type_as")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the element type of `other`."""
    return cast(self, other.dtype)


@tensor_method("__array_wrap__")
def array_wrap(self: Tensor, array: Any, context: Any = None, scalar: bool = False) -> Tensor:
    """Makes a Tensor of what a function of NumPy's gives for one: np.sin(tensor)."""
    return from_numpy(np.asarray(array))


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
    """Brings two tensors, or a tensor and a number, to the type of their result.

    A number stays a number, which costs no array and, in NumPy 2 as in PyTorch, does not widen a
    float type. With `floating`, integers become the default float type. An array of NumPy's counts
    as a tensor. TypeError for others.
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
    # Two plain tensors of one type are by far the most common case.
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        return apply_directly(Add, input, other)
    return apply_directly(Add, *operands(input, other))


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        return apply_directly(Mul, input, other)
    return apply_directly(Mul, *operands(input, other))


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input. RuntimeError for booleans."""
    return Neg.apply(input)


@tensor_method("sub", "subtract", "__sub__")
def sub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other, broadcast. RuntimeError for booleans."""
    if alpha != 1:
        other = mul(other, alpha)
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        return apply_directly(Sub, input, other)
    if bool_ in (result_type(input), result_type(other)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported: use `^` or "
            "logical_xor() instead."
        )
    return apply_directly(Sub, *operands(input, other))


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        if input.array.dtype.kind == "f":
            return apply_directly(Div, input, other)
    return apply_directly(Div, *operands(input, other, floating=True))


@tensor_method("positive", "__pos__")
def positive(input: Tensor) -> Tensor:
    """The tensor itself. RuntimeError for booleans."""
    if input.dtype is bool_:
        raise RuntimeError("positive() is not supported for bool tensors")
    return input


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
    import timeit

    def error(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError) as reason:
            return f"{type(reason).__name__}: {reason}"

    i, x, d = tensor([1, 2]), tensor([0.5, 1.5]), tensor(np.array([1.0, 2.0]))
    print((i + x).dtype, (x * d).dtype, (i / i).dtype)
    # -> tinytorch.float32 tinytorch.float64 tinytorch.float32
    print("NumPy:", (i.array + x.array).dtype, (i.array / i.array).dtype)
    # -> NumPy: float64 float64
    print((x * 2).dtype, (x * 2.5).dtype, (i * 2).dtype, (i * 2.5).dtype)
    # -> tinytorch.float32 tinytorch.float32 tinytorch.int64 tinytorch.float32
    print("0-d:", (x * tensor(np.array(2.0))).dtype, (i + tensor(1.5)).dtype)
    # -> 0-d: tinytorch.float32 tinytorch.float32
    print("a NumPy number:", (x.array * np.float64(2)).dtype, (x * np.float64(2)).dtype)
    # -> a NumPy number: float64 tinytorch.float32
    half = x.half()
    for _ in range(3):
        half = 1.0 - half * 0.5 / 3
    print("float16 stays:", half.dtype)  # -> float16 stays: tinytorch.float16

    w = tensor([1.0, 2.0], requires_grad=True)
    loss = w.double() * d
    loss.backward(tensor([1.0, 1.0]))
    print(loss.dtype, w.grad.dtype, w.grad)
    # -> tinytorch.float64 tinytorch.float32 tensor([1.0, 2.0])
    print("cut:", w.long().requires_grad, w.long())  # -> cut: False tensor([1, 2])
    print(w.to(as_dtype("float32")) is w, w.to(d).dtype, w.to("cpu") is w)
    # -> True tinytorch.float64 True
    print(w.clone().grad_fn.name(), w.clone().array is w.array)  # -> CloneBackward0 False

    print(error(lambda: tensor(True) - 1).partition(",")[0])  # -> RuntimeError: Subtraction
    print(error(lambda: x + "1"))  # -> TypeError: expected a Tensor or a number, not str
    print(np.array([1.0, 2.0]) + x, np.sqrt(x + x))
    # -> tensor([1.5, 3.5]) tensor([1.0, 1.7320508])
    print(x.add(tensor([1.0, 1.0]), alpha=10))  # -> tensor([10.5, 11.5])
    print("wraps around:", tensor([250]).byte() + 10)  # -> wraps around: tensor([4])

    bits = tensor([200, 100]).byte()
    print("a sum of bytes:", bits.sum_to_size(()), bits.sum_to_size(()).dtype)
    # -> a sum of bytes: tensor(300) tinytorch.int64

    def microseconds(action):
        return min(timeit.repeat(action, number=2000, repeat=5)) / 2000 * 1e6

    w = tensor([0.5] * 10, requires_grad=True)
    v = w * 2.0
    ways = [lambda: Mul.apply(v, w), lambda: apply_directly(Mul, v, w)]
    print("the same graph:", *(way().grad_fn.next_functions[0][0] is v.grad_fn for way in ways))
    # -> the same graph: True True
    print("microseconds:", *(round(microseconds(way), 2) for way in ways))  # -> ...
