"""Step 60g: Softmax, and three ways to stay finite

A classifier ends with one number for each class, and wants probabilities: positive, with sum 1.

    softmax(x)_i = e^(x_i) / (e^(x_1) + ... + e^(x_n))

As it stands, this formula is of no use. e^89 is already more than float32 can hold, and inf / inf
is nan. But numerator and denominator can be divided by the same e^m without changing the quotient.
Take m = max(x), and no exponent is above 0: the largest term is 1, and nothing overflows.
What is too small becomes 0, which does no harm, unless you go on and take its logarithm:

    log softmax(x)_i = x_i - m - log(e^(x_1 - m) + ... + e^(x_n - m))

This is right even where log(softmax(x)) is log(0) = -inf. So a loss uses log_softmax, always.
The last two terms together, m + log(...), are logsumexp: a smooth maximum, with softmax as its
gradient. (If all scores are -inf, nothing is left to choose from, and softmax gives nan.)

Fused or composed? All three could be written with operations that we have. As a Function of its
own, each is stable, its backward starts from the result y, and it is one node, not five or six:

    dL/dx_i = y_i (g_i - sum of g_k y_k)          softmax
    dL/dx_i = g_i - e^(y_i) (sum of g_k)          log_softmax

Running sums: x_1 is part of every y_i = x_1 + ... + x_i, x_n only of y_n. So the gradient is a
running sum from the other end.

A product has the derivative y / x_i, the product of all the others, and that is 0 / 0 if x_i is 0.
But the others can be multiplied without dividing: what stands before x_i, times what stands after
it. Shifts by 1, 2, 4, ... places do this for n factors in log2(n) rounds, and each round is made
of ordinary operations. So the second derivative is right as well.

Changed: the modules of extremes and norms are imported. New: softmax, logsumexp, cumsum, prod.
Try: return x.copy() from minus_max, and see what [1000, 999, 0] becomes.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, as_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.extremes import extreme_rows
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, summands, wide, widened


def minus_max(x: Any, dims: tuple[int, ...], xp: Any) -> Any:
    """A new array: x minus its maximum over `dims`, so that exp of it is at most 1."""
    x = xp.asarray(x, order="C")
    if x.size == 0:
        return x.copy()
    if dims == (x.ndim - 1,) and x.size > 200 and x.shape[-1] <= 128:
        return x - extreme_rows(x, "max")
    return xp.asarray(x - x.max(axis=dims, keepdims=True))


class Logsumexp(Reduction):
    """y = log(exp(x_1) + ... + exp(x_n));   dy/dx_i = exp(x_i - y).

    exp(1000) is inf, so the largest, m, is taken out: y = m + log(sum of exp(x_i - m)).
    """

    lowest = {4: -3e38, 8: -1e308}  # finite numbers of so many bytes

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


def sums_over(ctx: Function, x: Any) -> Any:
    """The sum of x over ctx.dims, in a shape that broadcasts against x."""
    sums = ctx.call(Sum, x, ctx.dims, True)
    short = x.__class__ is np.ndarray and ctx.dims == (x.ndim - 1,) and 1 < x.shape[-1] < 64
    # Over short rows NumPy's broadcast takes several times as long as repeating the sums.
    return np.repeat(sums.reshape(-1), x.shape[-1]).reshape(x.shape) if short else sums


@functools.singledispatch
def softmax_forward(x: Any, ctx: Function) -> Any:
    """The softmax of the array x along ctx.dims. An array type may bring a kernel of its own."""
    y = wide(x)
    if x.__class__ is np.ndarray and x.size > 1000 and -10 < y.min() and y.max() < 10:
        y = ctx.xp.exp(y)  # no maximum is needed: nothing overflows, and no sum is near 0
    else:
        y = minus_max(y, ctx.dims, ctx.xp)
        ctx.xp.exp(y, out=y)  # in place: allocating a large array is slow
    y /= sums_over(ctx, y)
    return y.astype(x.dtype, copy=False)


class Softmax(Function):
    """y_i = exp(x_i) / (sum of exp(x_k));   dL/dx_i = y_i (g_i - sum of g_k y_k)."""

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = softmax_forward(x, ctx)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        gy = g * y
        return gy - y * sums_over(ctx, gy)


class LogSoftmax(Function):
    """y_i = x_i - log(sum of exp(x_k));   dL/dx_i = g_i - exp(y_i) (sum of g_k).

    The logarithm of a softmax would be log(0) = -inf already for x = [0, 200].
    """

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


@reduction
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None):
    """The product of all elements, or along one dimension. The gradient is right for zeros too."""
    ndim = input.array.ndim
    dims = None if dim is None else reduced_dims(normalize_dim(dim, ndim), ndim)
    input, total = summands(input, dtype)
    return Prod.apply(input, dims, keepdim, total)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import full

    scores = tensor([1000.0, 999.0, 0.0])
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(scores.numpy())
        print("e^88, e^89:", np.exp(np.array([88, 89], np.float32)))
        # -> e^88, e^89: [1.6516363e+38           inf]
        print("as it is written:", e / e.sum())  # -> as it is written: [nan nan  0.]
    print("softmax:", softmax(scores, 0).tolist())  # -> softmax: [0.731059, 0.268941, 0.0]
    print("log of it:", softmax(scores, 0).log().tolist())
    # -> log of it: [-0.31326, -1.31326, -inf]
    print("log_softmax:", log_softmax(scores, 0).tolist())
    # -> log_softmax: [-0.31326, -1.31326, -1000.3132]
    print("logsumexp:", logsumexp(scores, 0).item())  # -> logsumexp: 1000.3132
    print("all masked out:", softmax(full((2,), -math.inf), 0).tolist())
    # -> all masked out: [nan, nan]

    # The gradient of logsumexp is softmax, and adding 7 to all scores changes no probability.
    x = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    logsumexp(x, 1).backward()
    print("same:", np.allclose(x.grad.numpy(), softmax(x, 1).detach().numpy()))  # -> same: True
    print("same:", np.allclose(*(softmax(y, 1).detach().numpy() for y in (x, x + 7))))
    # -> same: True

    # logsumexp and prod keep their dimension here: without it, the derivative of the derivative has
    # to reshape a tensor, which comes in the next step.
    for function, *parameters in (
        (softmax, 1),
        (log_softmax, 1),
        (logsumexp, 1, True),
        (cumsum, 1),
        (prod, 1, True),
    ):
        inputs = (x, *parameters)
        print(function.__name__, gradcheck(function, inputs), gradgradcheck(function, inputs))
        # -> softmax True True
        # -> log_softmax True True
        # -> logsumexp True True
        # -> cumsum True True
        # -> prod True True

    t = tensor([1.0, 2.0, 3.0], requires_grad=True)
    cumsum(t, 0).backward(tensor([1.0, 1.0, 1.0]))
    print("running sums:", cumsum(t, 0).tolist(), " each is part of so many:", t.grad.tolist())
    # -> running sums: [1.0, 3.0, 6.0]  each is part of so many: [3.0, 2.0, 1.0]

    # A zero among the factors: y / x would be 0 / 0 there.
    factors = tensor([2.0, 0.0, 5.0, 3.0], requires_grad=True)
    prod(factors).backward()
    print("product:", prod(factors).item(), "gradient:", factors.grad.tolist())
    # -> product: 0.0 gradient: [0.0, 30.0, 0.0, 0.0]
    two = tensor([2.0, 0.0, 0.0, 3.0], dtype=float64, requires_grad=True)
    print("two zeros, to second order:", gradgradcheck(prod, (two,)))
    # -> two zeros, to second order: True
    shifted = Shift.apply(tensor([1.0, 2.0, 3.0]), 0, 1, 1.0)
    print("shifted by one:", shifted.tolist())  # -> shifted by one: [1.0, 1.0, 2.0]
