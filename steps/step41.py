"""Step 41: Operands of two shapes

Broadcasting happens inside the operations since step 38: NumPy repeats, and the engine sums. Often
it has to be said before, and by name: this row, for each line of that table.

    x.expand(2, 3)             x seen in another shape, its dimensions of size 1 repeated
    x.expand(-1, 3)            -1: as it is
    x.expand_as(y)             in the shape of y
    broadcast_shapes(a, b)     what shape would come out, and no numbers are touched
    broadcast_tensors(x, y)    both in that shape

None of them copies. Expand has made a view with stride 0 all the time (step 38), and since step 40
the view knows its base. A million lines of one row take the memory of one row.

sum_to_size goes the other way. The engine called it and knew what it did; people err, so it checks
that the size would broadcast to the shape, and so do the others. Who asks for a size that is not 1
and not what is there gets both shapes named.

The trap is to write into an expanded tensor. One number in memory stands for many elements, and
x.array[0] = 5.0 would change them all; NumPy marks such an array as read-only, and step 43, which
writes in place, refuses it.

Changed: sum_to_size. New: expand, expand_as, broadcast_to, broadcast_shapes, broadcast_tensors.
Moved: Function, to autograd/node.py.
Try: take the shapes (3, 1) and (3,). Guess the result before you ask broadcast_shapes.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from tinytorch.autograd.modes import set_grad_enabled, thread
from tinytorch.autograd.node import Function, edge_of, sum_to
from tinytorch.core.device import Device, as_device
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes


def backward_pass(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor],
    create_graph: bool,
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    On their way gradients are plain arrays. They are Tensors if they shall be differentiated
    (create_graph), or if a mode on this thread wants to see each operation.

    Returns {leaf: gradient}.
    """
    as_tensors = create_graph or bool(thread.modes)
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    heap: list = []
    broadcast = False  # whether the inputs of the last node may have been broadcast
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None or grad is None:
                continue
            number = 0
            if edge.__class__ is tuple:
                edge, number = edge
            count = edge.n_outputs  # a leaf has none
            if broadcast:
                shape = edge.outputs[number][0] if count > 1 else edge.output_shape
                if grad.shape != shape:
                    grad = grad.sum_to_size(shape) if as_tensors else sum_to(grad, shape)
            earlier = arrived.get(edge)
            if earlier is None:
                if count:
                    heappush(heap, (edge.order, edge))
                if count > 1:
                    grad = [grad if i == number else None for i in range(count)]
                arrived[edge] = grad
            elif count > 1:
                earlier[number] = grad if earlier[number] is None else earlier[number] + grad
            elif edge in ours:
                earlier += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = total = earlier + grad
                if total.ndim and not as_tensors:  # NumPy's sum of two numbers cannot be written
                    ours.add(edge)
        if not heap:
            break
        node = heappop(heap)[1]
        grad = arrived.pop(node)
        if node.saved_at != Writes.count:
            node.check_saved()
        if node.plain and not as_tensors:
            grads = node.backward(grad)
        else:
            grads = general_step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges, broadcast = node.edges, node.elementwise
    return arrived


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """One node's backward where it is not a plain array formula of a single gradient."""
    grads = list(grad) if node.n_outputs > 1 else [grad]
    xp, device = node.device.xp, node.device
    if node.n_outputs > 1 and node.fill_missing:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(like[0], like[1])
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if not as_tensors and not node.on_tensors:
        return node.backward(*grads)
    if not as_tensors:
        grads = [None if g is None else wrap(xp.asarray(g), device) for g in grads]
    results = node.gradients(grads)
    if results.__class__ is not tuple:
        results = (results,)
    if as_tensors:
        return results
    return tuple(None if r is None else r.array for r in results)


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
        ctx.shape = x.shape
        return ctx.xp.broadcast_to(x, shape)

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
    return SumTo.apply(input, size)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
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
    return tuple(result)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors as views of one common shape."""
    shape = broadcast_shapes(*(tensor.array.shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)


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


@tensor_method("add", "__add__")
def add(input: Tensor, other: Any) -> Tensor:
    """input + other."""
    return Add.apply(input, other)


@tensor_method("mul", "multiply", "__mul__")
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


@tensor_method("__radd__")
def radd(self: Tensor, other: Any) -> Tensor:
    return add(other, self)


@tensor_method("__rmul__")
def rmul(self: Tensor, other: Any) -> Tensor:
    return mul(other, self)


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

    def error(action, *args):
        try:
            action(*args)
        except RuntimeError as reason:
            return str(reason)

    column = tensor([[1.0], [2.0]], requires_grad=True)
    table = column.expand(-1, 3)
    print(table, table._base is column)
    # -> tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]) True
    print("strides:", table.array.strides, "writeable:", table.array.flags.writeable)
    # -> strides: (4, 0) writeable: False
    (table * tensor([1.0, 2.0, 3.0])).backward(tensor([[1.0] * 3] * 2))
    print(column.grad)  # -> tensor([[6.0], [6.0]])

    row = tensor([1.0, 2.0, 3.0])
    many = row.expand(1_000_000, 3)
    print(many.numel(), "numbers in", row.nbytes, "bytes:", many._base is row)
    # -> 3000000 numbers in 12 bytes: True
    print(row.expand_as(table).shape, row.broadcast_to((2, 2, 3)).shape)
    # -> tinytorch.Size([2, 3]) tinytorch.Size([2, 2, 3])

    print(broadcast_shapes((2, 1), (3,), 1))  # -> (2, 3)
    print([tuple(x.shape) for x in broadcast_tensors(column, row, tensor(1.0))])
    # -> [(2, 3), (2, 3), (2, 3)]
    print(many.sum_to_size(1, 3))  # -> tensor([[1000000.0, 2000000.0, 3000000.0]])

    print(error(column.expand, 5, 3).partition(" at")[0])
    # -> The expanded size of the tensor (5) must match the existing size (2)
    print(error(column.expand, 3).partition(":")[0])  # -> expand([2, 1], size=[3])
    print(error(row.sum_to_size, 2))  # -> size [2] is not expandable to size [3].
    print(error(broadcast_shapes, (2, 3), (4,)))
    # -> Shape mismatch: objects cannot be broadcast to a single shape: [2, 3], [4]
