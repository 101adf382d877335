"""Step softmax06: Softmax of halves

A vocabulary of 128,256 words, all with the same score: the probability of each is 1 / 128,256. Step
softmax01 gets 0 for all of them in float16. Each e^0 is 1, their sum is 128,256, and the largest
float16 is 65,504: the sum is inf. For fewer words it is the rounding that hurts: exp rounds, the
sum rounds, the quotient rounds.

So all three functions compute in float32, and round once. softmax and log_softmax do this in
forward: y is saved in the input's type, half as large, and backward computes with it. logsumexp
goes through `widened` (step reduce06), since its backward subtracts y from x, and needs all digits
of both.

The float32 array y is new, so exp can write into it: out=y saves an allocation, which for a large
array takes as long as the exponential.

With dtype=..., the input is converted first, as for a sum. And logsumexp takes integers: they
become floats. (Of softmax, PyTorch refuses them, as step softmax01 does.)

The trap: `out=y` overwrites y, which is right only for an array that nothing else uses. minus_max
always makes a new one.

Changed: Softmax.forward, LogSoftmax.forward, logsumexp, softmax_along, softmax, log_softmax.
Try: leave wide out of Softmax.forward.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, as_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, summands, wide, widened


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
        y = minus_max(wide(x), dims, ctx.xp)
        ctx.xp.exp(y, out=y)  # in place: allocating a large array is slow
        y /= ctx.call(Sum, y, dims, True)
        y = y.astype(x.dtype, copy=False)
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
        y = minus_max(wide(x), dims, ctx.xp)
        y -= ctx.xp.log(ctx.call(Sum, ctx.xp.exp(y), dims, True))
        y = y.astype(x.dtype, copy=False)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g - ctx.xp.exp(y) * ctx.call(Sum, g, ctx.dims, True)


@reduction
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow. Integers become the default float type."""
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' must be tuple of ints, not NoneType")
    if not input.is_floating_point():
        input = cast(input, Defaults.dtype)
    return widened(Logsumexp, input, reduced_dims(dim, input.array.ndim), keepdim)


def softmax_along(function: type[Function], input: Tensor, dim: int, dtype: Any) -> Tensor:
    """Softmax or LogSoftmax along one dimension.

    Raises:
        TypeError: `dim` is not an integer.
        NotImplementedError: `input` is of an integer type.
    """
    ndim = input.array.ndim
    dim = normalize_dim(dim, ndim)
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    if not input.is_floating_point():
        raise NotImplementedError(f"softmax() is not implemented for {input.dtype!r}")
    return function.apply(input, (dim,) if ndim else ())


@reduction
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input), divided by its sum along `dim`: positive numbers that add up to 1."""
    return softmax_along(Softmax, input, dim, dtype)


@reduction
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(input, dim)), accurate also where the softmax underflows to 0."""
    return softmax_along(LogSoftmax, input, dim, dtype)


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
    from tinytorch.autograd.gradcheck import gradcheck
    from tinytorch.core.dtype import float16, float64
    from tinytorch.core.tensor import tensor

    def in_steps(x):  # step softmax01 in float16
        e = np.exp(x - x.max())
        return e / e.sum(dtype=np.float32).astype(np.float16)

    words = np.zeros(128_256, np.float16)
    print("in steps:", in_steps(words)[0].item(), " right:", 1 / len(words))
    # -> in steps: 0.0  right: 7.7969e-06
    print("widened:", softmax(tensor(words), 0).tolist()[0])  # -> widened: 7.8082e-06
    words = np.random.default_rng(0).normal(size=100).astype(np.float16)
    exact = np.exp(words.astype(float)) / np.exp(words.astype(float)).sum()
    for y in (in_steps(words), softmax(tensor(words), 0).numpy()):
        print(f"largest error: {np.abs(y / exact - 1).max():.4f}")
        # -> largest error: 0.0019
        # -> largest error: 0.0004

    scores = tensor([11.0, 3.0, 0.0], dtype=float16)
    print(
        "log_softmax:", log_softmax(scores, 0).tolist(), " logsumexp:", logsumexp(scores, 0).item()
    )
    # -> log_softmax: [-0.00035214, -8.0, -11.0]  logsumexp: 11.0
    print("as float64:", log_softmax(scores, 0, dtype=float64).tolist())
    # -> as float64: [-0.0003521, -8.0004, -11.0]
    print(softmax(tensor([1, 2]), 0, dtype=float16).dtype, logsumexp(tensor([1, 2]), 0).dtype)
    # -> tinytorch.float16 tinytorch.float32

    x = tensor([0.5, 2.0, -1.0], dtype=float16, requires_grad=True)
    y = softmax(x, 0)
    print("saved as", y.grad_fn.saved[0].dtype)  # -> saved as float16
    y.backward(tensor([1.0, 0.0, 0.0], dtype=float16))
    print("gradient:", x.grad.tolist(), x.grad.dtype)
    # -> gradient: [0.14453, -0.1377, -0.0068588] tinytorch.float16
    z = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    for function in (softmax, log_softmax, logsumexp):
        print(gradcheck(function, (z, 1)))
        # -> True
        # -> True
        # -> True
