"""Step softmax04: Running sums

How much was spent up to each day? The i-th element of cumsum is the sum of the first i elements:

    y_i = x_1 + ... + x_i              [1 2 3]  ->  [1 3 6]

x_1 is part of every y_i, x_n only of y_n. So the gradient of x_i is the sum of g_i and all that
come after it: a running sum from the other end.

    dL/dx_i = g_i + ... + g_n          [g g g]  ->  [3g 2g g]

Two flips make the one out of the other: flip, add, flip back. So Cumsum takes a direction,
`backwards`, its backward is a Cumsum in the other direction, and second derivatives need no further
code.

Types are those of a sum (steps reduce03 and reduce04): integers and booleans are added as int64,
halves as float32, and rounded at the end.

The trap: a running sum adds its n numbers one after the other, and its error grows with n, where a
plain sum adds in pairs (step reduce05). The last element of cumsum(x) need not be sum(x).

PyTorch: cumsum, with its in-place form. (A running product is made from other operations in step
derived01.)

New: Cumsum, cumsum, cumsum_.
Try: pass ctx.backwards, not its opposite, in backward.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, summands, wide


def minus_max(x: Any, dims: tuple[int, ...], xp: Any) -> Any:
    """A new array: x minus its maximum over `dims`, so that exp of it is at most 1."""
    x = xp.asarray(x, order="C")
    if x.size == 0:
        return x.copy()
    return xp.asarray(x - x.max(axis=dims, keepdims=True))


class Logsumexp(Reduction):
    """y = log(exp(x_1) + ... + exp(x_n));   dy/dx_i = exp(x_i - y).

    exp(1000) is inf, so the largest, m, is taken out: y = m + log(sum of exp(x_i - m)).
    """

    saves = 0, ~0
    lowest = {4: -3e38, 8: -1e308}  # by item size: the lowest finite number, nearly

    def forward(ctx, x: Any, dims: Any, keepdims: bool) -> Any:
        ctx.begin(x, dims, keepdims)
        xp = ctx.xp
        m = x.max(axis=dims, keepdims=True) if x.size else x.sum(axis=dims, keepdims=True)
        m = xp.where(xp.isfinite(m), m, xp.zeros_like(m))  # inf - inf would be nan
        total = xp.exp(x - m).sum(axis=dims, keepdims=keepdims)
        y = xp.log(total) + m.reshape(total.shape)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        # Where all x_i are -inf, so is y: with a finite number in its place x_i - y is not nan.
        y = ctx.xp.clip(y, ctx.lowest[y.dtype.itemsize], None)
        return ctx.spread(g) * ctx.xp.exp(x - ctx.spread(y))


class Softmax(Function):
    """y_i = exp(x_i) / (sum of exp(x_k));   dL/dx_i = y_i (g_i - sum of g_k y_k)."""

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = ctx.xp.exp(minus_max(x, dims, ctx.xp))
        y /= ctx.call(Sum, y, dims, True)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        gy = g * y
        return gy - y * ctx.call(Sum, gy, ctx.dims, True)


class LogSoftmax(Function):
    """y_i = x_i - log(sum of exp(x_k));   dL/dx_i = g_i - exp(y_i) (sum of g_k).

    The logarithm of a softmax would be log(0) = -inf already for x = [0, 200].
    """

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = minus_max(x, dims, ctx.xp)
        y -= ctx.xp.log(ctx.call(Sum, ctx.xp.exp(y), dims, True))
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g - ctx.xp.exp(y) * ctx.call(Sum, g, ctx.dims, True)


@reduction
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' must be tuple of ints, not NoneType")
    return Logsumexp.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


def softmax_along(function: type[Function], input: Tensor, dim: int) -> Tensor:
    """Softmax or LogSoftmax along one dimension.

    Raises:
        TypeError: `dim` is not an integer.
        NotImplementedError: `input` is of an integer type.
    """
    ndim = input.array.ndim
    dim = normalize_dim(dim, ndim)
    if not input.is_floating_point():
        raise NotImplementedError(f"softmax() is not implemented for {input.dtype!r}")
    return function.apply(input, (dim,) if ndim else ())


@reduction
def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(input), divided by its sum along `dim`: positive numbers that add up to 1."""
    return softmax_along(Softmax, input, dim)


@reduction
def log_softmax(input: Tensor, dim: int) -> Tensor:
    """log(softmax(input, dim)), accurate also where the softmax underflows to 0."""
    return softmax_along(LogSoftmax, input, dim)


class Cumsum(Function):
    """y_i = x_1 + ... + x_i. x_i is in y_i and all after it: backward sums from the other end."""

    def forward(ctx, x: Any, dim: int, backwards: bool = False, dtype: Any = None) -> Any:
        ctx.dim, ctx.backwards = dim, backwards
        if x.ndim == 0:
            return x.astype(dtype or x.dtype)
        z = ctx.xp.asarray(ctx.xp.flip(wide(x), dim) if backwards else wide(x), order="C")
        y = ctx.xp.cumsum(z, axis=dim, dtype=dtype or z.dtype)
        return (ctx.xp.flip(y, dim) if backwards else y).astype(dtype or x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cumsum, g, ctx.dim, not ctx.backwards)


@reduction
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along `dim`. Integers and booleans are added as int64."""
    input, total = summands(input, dtype)
    return Cumsum.apply(input, normalize_dim(dim, input.array.ndim), False, total)


cumsum_ = tensor_method("cumsum_")(in_place(cumsum))


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float16, float32, float64
    from tinytorch.core.tensor import tensor

    t = tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = cumsum(t, 0)
    y.backward(tensor([1.0, 1.0, 1.0]))
    print("running sums:", y.tolist(), " each is part of so many:", t.grad.tolist())
    # -> running sums: [1.0, 3.0, 6.0]  each is part of so many: [3.0, 2.0, 1.0]
    table = tensor([[1, 2], [3, 4]])
    print("down:", cumsum(table, 0).tolist(), " along:", cumsum(table, -1).tolist())
    # -> down: [[1, 2], [4, 6]]  along: [[1, 3], [3, 7]]
    print("types:", cumsum(tensor([True, True]), 0).tolist(), cumsum(table, 0, dtype=float32).dtype)
    # -> types: [1, 2] tinytorch.float32
    print(
        "in place:", tensor([1.0, 2.0]).cumsum_(0).tolist(), " 0-d:", cumsum(tensor(2.0), 0).item()
    )
    # -> in place: [1.0, 3.0]  0-d: 2.0

    ones = np.ones(4096, np.float16)
    print("halves:", cumsum(tensor(ones), 0).tolist()[-1], cumsum(tensor(ones), 0).dtype is float16)
    # -> halves: 4096.0 True
    tenths = np.full(1_000_000, 0.1, np.float32)
    t = tensor(tenths)
    print(f"one by one {cumsum(t, 0).tolist()[-1]:.0f}, in pairs {t.sum().item():.0f}")
    # -> one by one 100958, in pairs 100000

    z = tensor([[0.3, -1.2, 2.0], [0.1, 0.7, -0.4]], dtype=float64, requires_grad=True)
    for function in (lambda z: cumsum(z, 0), lambda z: cumsum(z * z, 1)):
        print(gradcheck(function, (z,)), gradgradcheck(function, (z,)))
        # -> True True
        # -> True True
