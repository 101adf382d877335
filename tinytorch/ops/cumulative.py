"""Running sums, and products whose gradient is right at a zero."""

from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Reduction, reduced_dims, reduction, summands, wide


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
