"""Step 43: Written in place

x = x * 2 makes a new array and drops the old one. x.mul_(2) writes into the old one: it needs no
new memory, and everybody who shares the old one sees the new numbers. Optimizers live on this. It
is also the source of many wrong gradients, because rules save arrays and trust that nobody changes
them.

What has to hold afterwards:

- History. After x.mul_(2) the name x stands for the product, and its grad_fn must say so. The
  product is computed aside, its numbers are copied into the old memory, and x takes its history.
- Saved values. Each write is counted (step 36). If an array was written after a rule saved it,
  backward raises when it comes to that rule (step 40). It never gives a wrong number.
- Leaves. A leaf that requires grad has no place for a history: it would no longer be a leaf, and
  would get no gradient. Refused, except under no_grad, which is what an optimizer uses.
- Views. A write into a view changes the base. As a formula: base = base with that part replaced by
  new values. CopySlices is this formula. The values get that part of the gradient, and what was
  there before gets zero. The other views of that base follow by themselves (step 41).
- Type and shape stay: an int64 tensor cannot hold 0.5, and a row cannot hold a table. Where one
  number in memory appears at several places (expand), it is not clear what a write would mean.

Where nothing is recorded and no mode is open, NumPy writes straight into the memory, without a
temporary array. add(a, b, out=c) writes into c (`into`), and is refused where a gradient is wanted.

The trap: detach() shares memory. A write into the detached tensor is not recorded, but it counts as
a write into the other one, too.

Changed: add, sub and mul take out=. New: in_place, assign, overwrite, into, CopySlices, add_, +=.
Modules finished: autograd/inplace.py, ops/arithmetic.py.
Try: take count_write out of assign. The first error that is due does not come, and the demo fails.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from tinytorch.autograd.direct import apply_directly

from tinytorch.autograd.modes import no_grad, set_grad_enabled, thread
from tinytorch.autograd.node import Function, edge_of, give_history
from tinytorch.core.dtype import Defaults, DType, bool_, can_cast, numpy_dtype, result_type
from tinytorch.core.tensor import Tensor, as_tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes, count_write, next_order
from tinytorch.ops.broadcast import expand
from tinytorch.ops.conversion import cast


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
            if not function.writable:
                raise RuntimeError(
                    f"a view made by {function.__name__} cannot be written in place where "
                    f"gradients are recorded: its elements overlap, or lie outside of its base. "
                    f"Please clone() the tensor before performing the operation."
                )
            whole = ctx.call(function, whole, *parameters)
        return whole

    def backward(ctx, g: Any) -> Any:
        rest = ctx.call(CopySlices, g, 0.0, ctx.view_calls, ctx.order_of_dims)
        return rest, ctx.part_of(g)


def check_writable(target: Tensor) -> None:
    """RuntimeError where writing into `target` would make a gradient or an element wrong."""
    if target._inference and not thread.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed."
        )
    if thread.grad_enabled and target.requires_grad:
        if target.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        if target._base is not None and target._grad_fn.on_tensors:
            raise RuntimeError(
                f"Output of {target._grad_fn.name()} is a view and is being modified inplace. "
                f"Please clone() it in forward."
            )
        if target._base is not None and target._base.is_leaf:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
    elif thread.grad_enabled and target._base is not None and target._base.requires_grad:
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Make the view outside of no_grad(), or detach() it."
        )
    strides, shape = target.array.strides, target.array.shape
    repeated = 0 in strides and 0 not in shape  # of an expanded tensor, if there is more than one
    if repeated and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def assign(target: Tensor, values: Tensor) -> Tensor:
    """Writes `values`, the fresh result of an operation, into the memory of `target`.

    RuntimeError where they have another shape, or a type of a higher category.
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
    record = thread.grad_enabled and (target.requires_grad or values._requires_grad)
    if record and values.dtype is not target.dtype:
        values = values.to(target.dtype)
    if record and target._base is not None:
        return overwrite(target, values)
    target.array[...] = values.array
    count_write(target.array)
    if record and values._requires_grad:
        take_over(target, values)
    return target


def into(out: Tensor, values: Tensor) -> Tensor:
    """Writes a result into the memory of `out`, and returns `out`: what `out=` asks for.

    An `out` of another shape gets new memory, with a warning where there was something in it.
    RuntimeError where a gradient would be recorded, and for a type of a higher category.
    """
    if thread.grad_enabled and (values.requires_grad or out.requires_grad):
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad."
        )
    if out.array.shape != values.array.shape:
        if out.array.size:
            warnings.warn(
                f"An output with one or more elements was resized: {out.shape} to {values.shape}",
                stacklevel=3,
            )
        out.array = out.device.xp.empty(values.array.shape, out.array.dtype)
    check_writable(out)
    return assign(out, values)


def take_over(target: Tensor, values: Tensor) -> None:
    """Makes `target` the result of the call that made `values`, also where the call has saved it:
    exp_ needs its result for backward, and a later write into it has to be noticed."""
    call = values._grad_fn
    give_history(target, call, values._output_nr)
    if has_saved(call, values.array):
        call.saved = tuple(target.array if v is values.array else v for v in call.saved)
        call.order = next_order()  # after the write that made it


def has_saved(call: Function | None, array: Any) -> bool:
    return call is not None and any(value is array for value in call.saved)


def overwrite(target: Tensor, values: Any) -> Tensor:
    """Replaces the elements of `target` by `values`, a tensor of its shape and type or a number.

    What the target was before has no part in the result: its gradient is zero.
    """
    if thread.grad_enabled and (target.requires_grad or getattr(values, "requires_grad", False)):
        base, calls = (target, ()) if target._base is None else (target._base, target._view_calls)
        give_history(base, CopySlices.apply(base, values, calls)._grad_fn, None)
    else:
        target.array[...] = values.array if isinstance(values, Tensor) else values
    count_write(target.array)
    return target


def write_directly(ufunc: str, target: Tensor, other: Any, alpha: float = 1) -> bool:
    """Computes target = ufunc(target, alpha * other) without a temporary result, if it may.

    It may where nothing is recorded or watched, and both are float tensors of one type, and of one
    shape or `other` a single number.
    """
    if thread.modes or not isinstance(other, Tensor) or other.device is not target.device:
        return False
    if thread.grad_enabled and (target.requires_grad or other.requires_grad):
        return False
    a, b = target.array, other.array
    if a.dtype is not b.dtype or a.dtype.kind != "f" or (b.ndim and a.shape != b.shape):
        return False
    getattr(target.device.xp, ufunc)(a, b if alpha == 1 else b * alpha, out=a)
    count_write(a)
    return True


def in_place(function: Callable[..., Tensor], ufunc: str = "") -> Callable[..., Tensor]:
    """The in-place form of an operation whose first argument is the tensor: add -> add_.

    Where the operation is a ufunc of the array library, its name saves the temporary result.
    """

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        if ufunc and args and write_directly(ufunc, self, *args, **kwargs):
            return self
        values = function(self, *args, **kwargs)
        if has_saved(values._grad_fn, self.array):  # backward needs what is overwritten now
            values = function(self.clone(), *args, **kwargs)
        return assign(self, values)

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}(), written into this tensor's memory."
    return method


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
def add(input: Tensor, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input + alpha * other, broadcast; the type of the result is `result_type(input, other)`."""
    if out is not None:
        return into(out, add(input, other, alpha=alpha))
    if alpha != 1:
        other = mul(other, alpha)
    # Two plain tensors of one type are by far the most common case.
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        return apply_directly(Add, input, other)
    return apply_directly(Add, *operands(input, other))


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any, *, out: Tensor | None = None) -> Tensor:
    """input * other, broadcast."""
    if out is not None:
        return into(out, mul(input, other))
    if input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype:
        return apply_directly(Mul, input, other)
    return apply_directly(Mul, *operands(input, other))


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input. RuntimeError for booleans."""
    return Neg.apply(input)


@tensor_method("sub", "subtract", "__sub__")
def sub(input: Tensor, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
    """input - alpha * other, broadcast. RuntimeError for booleans."""
    if out is not None:
        return into(out, sub(input, other, alpha=alpha))
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


add_ = tensor_method("add_", "__iadd__")(in_place(add, "add"))
sub_ = tensor_method("sub_", "subtract_", "__isub__")(in_place(sub, "subtract"))
mul_ = tensor_method("mul_", "multiply_", "__imul__")(in_place(mul, "multiply"))
neg_ = tensor_method("neg_", "negative_")(in_place(neg))
true_divide_ = tensor_method("__itruediv__")(in_place(true_divide, "divide"))


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":
    import tracemalloc

    def error(action, *args):
        try:
            action(*args)
        except RuntimeError as reason:
            return str(reason)

    ones = tensor([1.0, 1.0])
    x = tensor([3.0, 4.0], requires_grad=True)
    y = x * 2.0
    y.mul_(10.0)
    y += 1.0
    print(y, y.grad_fn.name(), y._version)  # -> tensor([61.0, 81.0]) AddBackward0 2
    y.backward(ones)
    print(x.grad)  # -> tensor([20.0, 20.0])

    y = x * 2.0
    z = y * y  # saves y
    y.add_(100.0)
    print(error(z.backward, ones).partition(":")[0].rpartition(" has ")[2])
    # -> been modified by an inplace operation
    y = x * 2.0
    z = y * y
    y.detach().add_(100.0)
    print("detach:", error(z.backward, ones).rpartition(", ")[2])
    # -> detach: was written after that. It is at version 1.

    print(error(x.add_, 1.0))
    # -> a leaf Variable that requires grad is being used in an in-place operation.
    with no_grad():
        x -= x.grad * 0.1
    print("an update:", x, x.is_leaf)  # -> an update: tensor([1.0, 2.0]) True

    print(error(tensor([1, 2]).add_, 0.5))
    # -> result type tinytorch.float32 can't be cast to the desired output type tinytorch.int64
    print(error(ones.add_, tensor([[1.0], [2.0]])))
    # -> output with shape [2] doesn't match the broadcast shape [2, 2]
    print(error(expand(tensor(1.0), 3).add_, 1.0).partition(" refers")[0])
    # -> unsupported operation: more than one element of the written-to tensor
    print(tensor([7, 8]).mul_(2))  # -> tensor([14, 16])
    c = tensor([0.0, 0.0])
    print(add(ones, ones, out=c) is c, c)  # -> True tensor([2.0, 2.0])

    class Row(Function):
        """Row i of a table, as a view."""

        view = True

        def forward(ctx, x, i):
            ctx.i, ctx.rows = i, len(x)
            return x[i]

        def backward(ctx, g):
            return ctx.call(AsRow, g, ctx.i, ctx.rows)

    class AsRow(Function):
        """A table of zeros, but for row i."""

        def forward(ctx, row, i, rows):
            ctx.i = i
            table = ctx.xp.zeros((rows, *row.shape), row.dtype)
            table[i] = row
            return table

        def backward(ctx, g):
            return ctx.call(Row, g, ctx.i)

    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    w = tensor([5.0, 6.0], requires_grad=True)
    table = x * 1.0
    first, second = Row.apply(table, 0), Row.apply(table, 1)
    second.mul_(w)
    print(table)  # -> tensor([[1.0, 2.0], [15.0, 24.0]])
    print(table.grad_fn.name(), second.grad_fn.name(), first.requires_grad)
    # -> CopySlicesBackward0 RowBackward0 True
    table.backward(tensor([[1.0, 1.0], [1.0, 1.0]]))
    print(x.grad, w.grad)  # -> tensor([[1.0, 1.0], [5.0, 6.0]]) tensor([3.0, 4.0])

    big, other = tensor(np.ones(1_000_000)), tensor(np.ones(1_000_000))

    def peak(action):
        tracemalloc.start()
        action()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return round(most / 1e6)

    print(f"MB: {peak(lambda: big + other)} new, {peak(lambda: big.add_(other))} in place")
    # -> MB: 8 new, 0 in place
