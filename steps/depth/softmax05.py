"""Step softmax05: A product that contains zero

    y = x_1 x_2 ... x_n          dy/dx_i = the product of all the others = y / x_i

If x_i is 0, y / x_i is 0 / 0. With one zero among the factors, its own slope is the product of the
others, which need not be 0; with two zeros, all slopes are 0. These cases could be told apart, but
second derivatives need products without two factors, and so on.

The product of the others needs no division: it is the product of all factors before x_i, times the
product of all after it. The products before each place are found by shifting:

    x                        a      b       c       d
    shifted by 1             1      a       b       c
    times itself, by 1       1      a       ab      bc           two factors each
    times that, by 2         1      a       ab      abc          up to four

Each round doubles the number of factors, so n factors take log2(n) rounds. Each round is made of
ordinary operations, and Shift is linear, with the shift to the other side as its derivative. So the
second derivative is right as well. (x_2 ... x_n is the same from the other end.)

Where no factor is 0, dividing is faster, and right. `Prod` looks at y: it is 0 if one of them is.

The trap is underflow: y may be 0 where no x_i is. Then the slow way is taken, and is right too.

New: Shift, product_before, Prod, prod.
Try: always divide, and see the nan.
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


class Shift(Function):
    """y_i = x_(i - steps) along `dim`, and `fill` where that is outside: [1 2 3] -> [0 1 2]."""

    def forward(ctx, x: Any, dim: int, steps: int, fill: float = 0.0) -> Any:
        ctx.dim, ctx.steps = dim, steps
        y = ctx.xp.roll(x, steps, dim)
        outside = slice(None, steps) if steps > 0 else slice(steps, None)
        y[(slice(None),) * dim + (outside,)] = fill
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Shift, g, ctx.dim, -ctx.steps)


def product_before(ctx: Function, x: Any, dim: int, direction: int) -> Any:
    """The product of all factors before x_i (direction 1) or after it (-1).

    Each round doubles the number of factors: 1, 2, 4, ... There is no division, so a factor of 0
    does no harm, here and in the derivatives.
    """
    y, steps = ctx.call(Shift, x, dim, direction, 1.0), 1
    while steps < x.shape[dim]:
        y = y * ctx.call(Shift, y, dim, direction * steps, 1.0)
        steps *= 2
    return y


class Prod(Reduction):
    """y = x_1 ... x_n;   dy/dx_i = y / x_i, or the product of all others if y is 0."""

    saves = 0, ~0

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        ctx.begin(x, dims, keepdims)
        y = wide(x).prod(axis=dims, keepdims=keepdims, dtype=dtype)
        y = y.astype(dtype or x.dtype, copy=False)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        if ctx.shape == ():
            return g
        if bool(y.all()):
            return ctx.spread(g * y) / x
        along = 0 if ctx.dims is None else ctx.dims[0]
        row = x.reshape((-1,)) if ctx.dims is None and x.ndim > 1 else x
        others = product_before(ctx, row, along, 1) * product_before(ctx, row, along, -1)
        return ctx.spread(g) * (others if row is x else others.reshape(ctx.shape))

    def name(ctx) -> str:  # PyTorch has a form without dimensions and one with them
        return f"{type(ctx).__name__}Backward{int(ctx.dims is not None)}"


@reduction
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None):
    """The product of all elements, or along one dimension. The gradient is right for zeros too."""
    ndim = input.array.ndim
    dims = None if dim is None else reduced_dims(normalize_dim(dim, ndim), ndim)
    input, total = summands(input, dtype)
    return Prod.apply(input, dims, keepdim, total)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def gradient(data, dim=None):
        x = tensor(data, requires_grad=True)
        prod(x, dim).sum().backward()
        return x.grad.tolist()

    x = np.array([2.0, 0.0, 5.0, 3.0])
    print("y / x:", x.prod() / x)  # -> y / x: [ 0. nan  0.  0.]
    print("product:", prod(tensor(x)).item(), " gradient:", gradient(x))
    # -> product: 0.0  gradient: [0.0, 30.0, 0.0, 0.0]
    print("no zero:", gradient([2.0, 4.0, 5.0]), " two:", gradient([2.0, 0.0, 0.0]))
    # -> no zero: [20.0, 10.0, 8.0]  two: [0.0, 0.0, 0.0]
    some, whole = prod(ones := tensor([[1.0]], requires_grad=True), 0), prod(ones)
    print("nodes:", whole.grad_fn.name(), some.grad_fn.name())
    # -> nodes: ProdBackward0 ProdBackward1
    print("shifted by one:", Shift.apply(tensor([1.0, 2.0, 3.0]), 0, 1, 1.0).tolist())
    # -> shifted by one: [1.0, 1.0, 2.0]

    # The products of all factors before each place, and of all after it.
    ctx, row = Prod(), np.array([2.0, 3.0, 5.0, 7.0, 11.0])
    print(product_before(ctx, row, 0, 1), product_before(ctx, row, 0, -1))
    # -> [  1.   2.   6.  30. 210.] [1.155e+03 3.850e+02 7.700e+01 1.100e+01 1.000e+00]

    print(
        "per row:",
        prod(tensor([[1, 2], [3, 4]]), 1).tolist(),
        gradient([[2.0, 3.0], [0.0, 4.0]], 1),
    )
    # -> per row: [2, 12] [[3.0, 2.0], [4.0, 0.0]]
    print("of a table:", gradient([[2.0, 3.0], [0.0, 4.0]]), " 0-d:", gradient(5.0))
    # -> of a table: [[0.0, 0.0], [24.0, 0.0]]  0-d: 1.0
    two = tensor([2.0, 0.0, 0.0, 3.0], dtype=float64, requires_grad=True)
    print("two zeros, to second order:", gradcheck(prod, (two,)), gradgradcheck(prod, (two,)))
    # -> two zeros, to second order: True True
