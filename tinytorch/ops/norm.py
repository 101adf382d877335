"""Norms, and count_nonzero."""

import math
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.ops.comparison import ne
from tinytorch.ops.elementwise import abs
from tinytorch.ops.minmax import amax, amin
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, sum, summands, widened


class Norm(Reduction):
    """y = (|x_1|^p + ... + |x_n|^p)^(1/p);   dy/dx_i = sign(x_i) (|x_i| / y)^(p - 1).

    The gradient is 0 where x_i or y is 0: among the possible slopes PyTorch takes this one. Order 0
    counts the x_i that are not 0, and its gradient is 0.
    """

    saves = 0, ~0

    def forward(ctx, x: Any, p: float, dims: Any, keepdims: bool) -> Any:
        ctx.begin(x, dims, keepdims)
        ctx.p = p
        terms = x * x if p == 2 else (x != 0).astype(x.dtype) if p == 0 else ctx.xp.abs(x)
        y = ctx.call(Sum, terms if p in (0, 1, 2) else terms**p, dims, keepdims)
        y = ctx.xp.sqrt(y) if p == 2 else y if p in (0, 1) else y ** (1 / p)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        y = y + (y == 0)
        if ctx.p == 2:
            return ctx.spread(g / y) * x
        size = (ctx.xp.abs(x) + (x == 0)) / ctx.spread(y)
        return ctx.spread(g) * ctx.xp.sign(x) * size ** (ctx.p - 1) * (ctx.p != 0)


@reduction
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The norm of order p (a number, inf or -inf; "fro" is 2) over `dim`.

    inf is the largest |x_i|, -inf the smallest, 0 counts the nonzero.

    Raises:
        RuntimeError: `input` is of an integer type.
        TypeError: `p` is an unknown name.
    """
    p = 2 if p in (None, "fro") else p
    if not input.is_floating_point():
        raise RuntimeError(f"norm(): Expected a floating point tensor. Got {input.dtype!r}")
    dims = reduced_dims(dim, input.array.ndim)
    input, _ = summands(input, dtype)
    if not math.isinf(p):
        return widened(Norm, input, p, dims, keepdim)
    return (amax if p > 0 else amin)(abs(input), dim, keepdim)


@reduction
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not 0, of all or along dimensions: int64."""
    return sum(ne(input, 0), dim)
