"""Step 38: Broadcasting, and its mirror image

Add a row of 3 numbers to a table of 2 x 3, and NumPy uses the row for each line of the table: it
broadcasts. The rule: write the shapes one below the other, aligned at the right. In each column the
sizes must be equal, or one of them 1 or missing; there the array is repeated.

    x   2 x 3
    b       3      ->  2 x 3

Our backward knows nothing of this. Add passes on its g, which has the shape of the result, so
step 37 gives the bias b a gradient of shape 2 x 3. Nobody complains, and the update b - lr * b.grad
makes a table of b: the network now has the wrong number of parameters, and still there is no error.

The right gradient follows from step 14. The row is used twice, once per line, so both gradients
count, and they are added:

    y = repeat(x)   ->   dL/dx = sum of dL/dy over the repeated places
    y = sum(x)      ->   dL/dx = dL/dy repeated

Repeating and summing mirror each other: each is the other's derivative. Expand is the first, SumTo
the second, and each one's backward calls the other. Expand copies nothing: an array with stride 0
shows the same number again and again.

The rules of the operations stay as they are. They only declare `elementwise = True`. Then a call
notes the shapes of its inputs, if one was repeated, and the engine sums their gradients back
(sum_back). So Neg, Sub and Div can return (step 31 put them aside), and their formulas need not
mention shapes. (PyTorch does the same.)

The trap is shape (2, 1) with shape (2,): the result is 2 x 2, which is hardly ever meant. Where the
shapes do not fit at all, `explain` makes PyTorch's RuntimeError of NumPy's ValueError, with both
shapes in it; where NumPy has no such function for the types, a NotImplementedError.

Changed: Function.apply, backward_pass. New: note_shapes, sum_back, sum_to, Expand, SumTo,
sum_to_size, Function.explain; Neg, Sub, Div and their operators.
Try: take `elementwise = True` out of Add, and see what shape the gradient of the bias has.
"""

import contextlib
import copy
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import next_order


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
        try:
            result = cls.forward(ctx, *arrays)
        except (ValueError, TypeError) as error:
            raise cls.explain(error, arrays) from error
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
            ctx.output_shape = out.array.shape
            ctx.output_id = id(out.array)
            if cls.elementwise:
                ctx.note_shapes(arrays, out.array.shape)
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

    def ones(*shape):
        return tensor(np.ones(shape, np.float32))

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    b = tensor([10.0, 20.0, 30.0], requires_grad=True)
    y = x + b
    print(y.tolist())  # -> [[11.0, 22.0, 33.0], [14.0, 25.0, 36.0]]
    y.backward(ones(2, 3))
    print("bias:", b.grad)  # -> bias: tensor([2.0, 2.0, 2.0])

    class OldAdd(Add):
        """Addition as step 37 had it."""

        elementwise = False

    b.grad = None
    OldAdd.apply(x, b).backward(ones(2, 3))
    print("step 37 gave the shape", b.grad.shape)
    # -> step 37 gave the shape tinytorch.Size([2, 3])
    print("and after an update", (b - b.grad * 0.1).shape)
    # -> and after an update tinytorch.Size([2, 3])

    scale = tensor(2.0, requires_grad=True)
    (x * scale).backward(ones(2, 3))
    print("a single number:", scale.grad, "= the sum of x:", x.array.sum())
    # -> a single number: tensor(21.0) = the sum of x: 21.0

    column = tensor([[1.0], [2.0]], requires_grad=True)
    (column * x).backward(ones(2, 3), create_graph=True)
    print("a column:", column.grad.tolist())  # -> a column: [[6.0], [15.0]]
    x.grad = None
    column.grad.backward(ones(2, 1))
    print("the second derivative spreads:", x.grad.tolist())
    # -> the second derivative spreads: [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    row = tensor([1.0, 2.0, 3.0])
    table = Expand.apply(row, (1000, 3))
    print(table.shape, "strides", table.array.strides)
    # -> tinytorch.Size([1000, 3]) strides (0, 4)
    print("no copy:", np.shares_memory(table.array, row.array))  # -> no copy: True
    row.requires_grad_()
    row.sum_to_size(()).backward()
    print("its gradient is no read-only view:", row.grad, row.grad.array.flags.writeable)
    # -> its gradient is no read-only view: tensor([1.0, 1.0, 1.0]) True
    print("and back:", table.sum_to_size(3))  # -> and back: tensor([1000.0, 2000.0, 3000.0])

    print("hardly meant:", (ones(2, 1) + ones(2)).shape)  # -> hardly meant: tinytorch.Size([2, 2])
    try:
        ones(2, 3) + ones(4)
    except RuntimeError as reason:
        print(str(reason).partition(" at ")[0])
        # -> The size of tensor a (3) must match the size of tensor b (4)
        print("both", str(reason).rpartition("(")[2].strip(")"))  # -> both shapes [2, 3] and [4]
