"""Normalisation: numbers of mean 0 and variance 1, in a batch, a layer or a group of channels."""

import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float32
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.reduction import Mean, wide


class Normalization(Function):
    """y = h w + b with h = (x - m) r: m is the mean, r = 1 / sqrt(v + eps), v the variance.

        dL/dx = r (e - mean(e) - h mean(e h)), e = g w;   dL/dw = sum of g h;   dL/db = sum of g

    The kinds differ in `dims`, over which means are taken when x has the shape `shape`. The last
    dimension is one of them. w and b belong to it where `shape` is [rows, n], and else to those
    between the first and the last: [batch, channels, n].

    Arrays are computed as rows of n elements. A mean over `dims` is a mean of the rows' sums, and
    all else has the form x s + t, with two numbers for each row (`combine`).
    """

    saves = 0, 1, 2, None, None
    centered = True
    far = False  # the mean is large beside the deviations

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.shape, ctx.dims = shape, dims
        ctx.eps = float(eps + 0)  # a TypeError for 1j, and for "1e-5"
        ctx.fixed = momentum is None and running_mean is not None
        rows = ctx.rows(x)
        if ctx.fixed:
            m, v = ctx.per_row(running_mean), ctx.per_row(running_var)
        else:
            rows, m, v = ctx.moments(rows)
        if momentum is not None and rows.size:
            n = ctx.count()
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + ctx.eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        s = r * ctx.per_row(weight)
        t = 0 if ctx.far else -m * s
        b = 0 if bias is None else ctx.per_row(bias)
        y = ctx.combine(ctx.columns(rows, weight, bias), (rows, s, 0), (None, t, b))
        return ctx.back(y, x)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        if isinstance(g, Tensor):
            return ctx.formula(g, x, weight, bias, m, r)
        rows, grads = ctx.rows(x), ctx.rows(g)
        if ctx.far:
            rows, m = rows - m, 0 * m
        w, columns = ctx.per_row(weight), ctx.columns(rows, weight)
        sums = grads @ columns[:1].T  # of g w over each row, where w belongs to its elements
        if len(ctx.shape) == 2:
            products, gw = ctx.products(rows, grads, columns[:1].T, r)
            gw, gb = gw - (m * r)[:, 0] @ grads, ctx.xp.ones_like(r)[:, 0] @ grads
            products = r * (products - m * sums)  # of g w h
        else:
            products = r * (dot_rows(rows, grads) - m * sums)
            gw, gb = (a.reshape(ctx.shape[:-1]).sum(axis=0) for a in (products, sums))
        gx = None
        if ctx.edges[0] is not None:
            terms = [(grads, r * w, 0)]
            if not ctx.fixed:
                slope, mean = ctx.mean(w * products), ctx.centered * ctx.mean(w * sums)
                terms += [(rows, 0, -r * r * slope), (None, 0, r * (r * m * slope - mean))]
            gx = ctx.back(ctx.combine(columns, *terms), x)
        return gx, ctx.back(gw, weight), ctx.back(gb, bias)

    def formula(ctx, g: Tensor, x: Tensor, weight: Any, bias: Any, m: Any, r: Tensor) -> tuple:
        """backward as the formula says it: m and r, too, are differentiated."""
        shape = ctx.shape
        inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)
        c, e = (ctx.turned(a).to(r.dtype).reshape(shape) for a in (x, g))
        if ctx.fixed:
            c, r = c - m.reshape(*shape[:-1], 1), r.reshape(*shape[:-1], 1)
        else:
            c = c - ctx.means(c) if ctx.centered else c
            r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)
        h = c * r
        gw, gb = (ctx.call(SumTo, a, inner) for a in (e * h, e))
        e = e if weight is None else e * weight.to(r.dtype).reshape(inner)
        if not ctx.fixed:
            e = e - ctx.centered * ctx.means(e) - h * ctx.means(e * h)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)

    # The parts of the computation on rows.

    def turned(ctx, x: Any) -> Any:
        """A batch [n, channels] has rows of one element; turned, it has rows of n."""
        return x.T if x.ndim == 2 and len(ctx.shape) == 3 else x

    def rows(ctx, x: Any) -> Any:
        return wide(ctx.turned(x)).reshape(math.prod(ctx.shape[:-1]), ctx.shape[-1])

    def back(ctx, rows: Any, like: Any) -> Any:
        """Rows in the shape and type of `like`, an input; None for one that is absent."""
        if like is None:
            return None
        y = ctx.turned(rows.reshape(ctx.turned(like).shape))
        return y.to(like.dtype) if isinstance(y, Tensor) else y.astype(like.dtype, copy=False)

    def per_row(ctx, value: Any) -> Any:
        """A number for each channel as one for each row; 1 for what belongs to the elements."""
        if value is None or len(ctx.shape) == 2:
            return 1
        value = wide(value).reshape(ctx.shape[1:-1])
        return ctx.xp.broadcast_to(value, ctx.shape[:-1]).reshape(-1, 1)

    def columns(ctx, rows: Any, weight: Any, bias: Any = None) -> Any:
        """weight and bias, one below the other, where they belong to the elements; else ones."""
        columns = ctx.xp.ones((2, rows.shape[1]), rows.dtype)
        for i, value in enumerate((weight, bias)):
            if value is not None and len(ctx.shape) == 2:
                columns[i] = value.reshape(-1)
        return columns

    def count(ctx) -> int:
        """How many elements a mean is of."""
        return math.prod(ctx.shape[dim] for dim in ctx.dims)

    def mean(ctx, sums: Any) -> Any:
        """The mean over `dims`, for each row, from the sum of each row."""
        sums = sums / ctx.count()
        if len(ctx.dims) == 1:
            return sums
        means = sums.reshape(ctx.shape[:-1]).sum(axis=ctx.dims[:-1], keepdims=True)
        return ctx.xp.broadcast_to(means, ctx.shape[:-1]).reshape(-1, 1)

    def moments(ctx, rows: Any) -> tuple:
        """The rows, and their mean and variance. If a mean is large, the difference of two sums
        would leave only rounding errors: it is subtracted from the rows first."""
        if not ctx.centered:
            return rows, 0, ctx.mean(dot_rows(rows, rows))
        m = ctx.mean(rows @ ctx.xp.ones((rows.shape[1], 1), rows.dtype))
        v = ctx.mean(dot_rows(rows, rows)) - m * m
        ctx.far = bool((4 * v < m * m).any())
        if ctx.far:
            rows = rows - m
            v = ctx.mean(dot_rows(rows, rows))
        return rows, m, v

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value[: ctx.shape[1], 0] - running
            running += (momentum * value).astype(running.dtype, copy=False)
            bump_version(running)

    def parts(ctx, rows: Any) -> list[slice]:
        """Slices of so many rows as the cache holds."""
        limit = ctx.device.backend.chunk_elements or rows.size
        step = max(1, limit // max(1, rows.shape[1]))
        return [slice(i, i + step) for i in range(0, len(rows), step)]

    def products(ctx, rows: Any, grads: Any, w: Any, r: Any) -> tuple:
        """The sums of g x w over each row, and of g x r over each column."""
        across, down = ctx.xp.empty_like(r), 0
        for part in ctx.parts(rows):
            product = grads[part] * rows[part]
            across[part] = product @ w
            down = down + r[part, 0] @ product
        return across, down

    def combine(ctx, columns: Any, *terms: tuple) -> Any:
        """The sum of a * ([s, t] @ columns) for each (a, s, t): an array of rows (None: 1) and two
        numbers for each row. Over short rows a broadcast takes twice as long as such a product."""
        xp, rows = ctx.xp, terms[0][0]
        y = xp.empty(rows.shape, rows.dtype)
        pairs = xp.empty((len(terms), len(rows), 2), rows.dtype)
        for pair, (_, s, t) in zip(pairs, terms, strict=True):
            pair[:, :1], pair[:, 1:] = s, t
        for part in ctx.parts(rows):
            for i, (a, _, _) in enumerate(terms):
                term = xp.matmul(pairs[i, part], columns, out=None if i else y[part])
                if a is not None:
                    term *= a[part]
                if i:
                    y[part] += term
        return y


def dot_rows(a: Any, b: Any) -> Any:
    """The product of each row of a with that of b, [rows, 1]."""
    return (a[:, None, :] @ b[:, :, None])[:, 0]


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels, m] has one mean for each channel."""


class NativeLayerNorm(Normalization):
    """Means over the last dimensions: [rows, n] has one mean for each row."""


class NativeGroupNorm(Normalization):
    """Means over groups of channels: [n, groups, channels of a group, m] has n * groups means."""


class RmsNorm(Normalization):
    """As NativeLayerNorm, with 0 in the place of the mean."""

    centered = False

    def name(ctx) -> str:  # of the last of PyTorch's operations
        return "MulBackward0"


def check(name: str, input: Tensor, shape: tuple, *others: Tensor | None) -> None:
    """Checks that `others` have the shape, and the type of the input, or float32 beside a half.

    Raises:
        RuntimeError: they have not.
        NotImplementedError: for integers.
    """
    for other in others:
        if other is not None and other.array.shape != shape:
            found = f"{list(other.array.shape)} and not {list(shape)}"
            raise RuntimeError(f"Expected weight and the like to be of same shape, but got {found}")
        half = input.dtype.itemsize == 2 and other is not None and other.dtype is float32
        if other is not None and other.dtype is not input.dtype and not half:
            raise RuntimeError(f"{name}: mixed dtype: {input.dtype!r} and {other.dtype!r}")
    if not input.is_floating_point():
        raise NotImplementedError(f"{name} is not implemented for {input.dtype!r}")


def check_count(count: int, shape: tuple[int, ...]) -> None:
    """Raises ValueError for a single value: it would be its own mean, and the result 0."""
    if count == 1:
        size = f"got input size {list(shape)}"
        raise ValueError(f"Expected more than 1 value per channel when training, {size}")


@checked
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels, ...].

    In training, mean and var (divided by the count n) are those of the batch, and the running ones
    are moved towards them (there var is divided by n - 1); otherwise they are the running ones.
    Source: Ioffe and Szegedy, 2015.
    Raises:
        ValueError: in training, there is one value for each channel; eps is negative.
        RuntimeError: sizes or types do not fit; the running statistics are needed and absent.
        NotImplementedError: for integers.
    """
    shape = input.array.shape
    n, channels, length = shape[0], (*shape, 0)[1], math.prod(shape[2:])
    if training:
        check_count(n * length, shape)
    elif running_mean is None or running_var is None:
        raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
    if eps < 0 or training and eps == 0:
        raise ValueError(f"batch_norm eps must be positive, but got {eps}")
    others = weight, bias, running_mean, running_var
    check("batch_norm", input, (channels,), *others)
    sizes = (1, channels, n) if len(shape) == 2 else (n, channels, length)
    return NativeBatchNorm.apply(input, *others, sizes, (0, 2), eps, momentum if training else None)


@checked
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """batch_norm of each item of a batch alone: of [n, channels, ...] as [1, n * channels, ...].

    The running statistics move towards the mean of those of the items.
    Source: Ulyanov et al., 2016.
    Raises:
        ValueError, RuntimeError, NotImplementedError: as batch_norm.
    """
    shape = input.array.shape
    if use_input_stats:
        check_count(math.prod(shape[2:]), shape)
    whole = running_mean, running_var, weight, bias
    parts = [None if t is None else t.repeat(shape[0]) for t in whole]
    items = input.reshape(1, shape[0] * shape[1], *shape[2:])
    y = batch_norm(items, *parts, use_input_stats, momentum, eps)
    for running, part in zip(whole[:2], parts[:2], strict=True):
        if use_input_stats and running is not None:
            running.copy_(part.reshape(shape[0], -1).mean(0))
    return y.reshape(shape)


@checked
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As batch_norm, with means over groups of the channels of one item (Wu and He, 2018).

    Raises:
        ValueError: a mean would be of a single element.
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    shape = input.array.shape
    if len(shape) < 2 or shape[1] % as_integer(num_groups):
        raise RuntimeError(
            f"Expected at least 2 dimensions, and the number of channels to be divisible by "
            f"num_groups ({num_groups}), but got input of shape {list(shape)}"
        )
    sizes = (shape[0], num_groups, shape[1] // num_groups, math.prod(shape[2:]))
    check_count(math.prod(sizes) // num_groups, shape)
    check("group_norm", input, shape[1:2], weight, bias)
    return NativeGroupNorm.apply(input, weight, bias, None, None, sizes, (2, 3), eps)


def last_sizes(input: Tensor, normalized_shape: Any) -> tuple[tuple, tuple]:
    """normalized_shape as a tuple, and `input` as rows of so many elements: [rows, n].

    Raises:
        RuntimeError: the last dimensions have other sizes.
    """
    shape, inner = input.array.shape, tuple(normalized_shape)
    if not inner or shape[-len(inner) :] != inner:
        raise RuntimeError(f"Given normalized_shape={list(inner)}, got input of size {list(shape)}")
    return inner, (math.prod(shape[: len(shape) - len(inner)]), math.prod(inner))


@checked
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As batch_norm, with means over the last dimensions, of the sizes normalized_shape, and a
    weight for each of their elements (Ba et al., 2016).

    Raises:
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    inner, sizes = last_sizes(input, normalized_shape)
    check("layer_norm", input, inner, weight, bias)
    return NativeLayerNorm.apply(input, weight, bias, None, None, sizes, (1,), eps)


@checked
def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean(input^2) + eps) * weight, with means over the last dimensions (Zhang and
    Sennrich, 2019). Without eps, it is the distance from 1 to the next number of the type.

    Raises:
        RuntimeError: sizes do not fit.
        NotImplementedError: for integers.
    """
    inner, sizes = last_sizes(input, normalized_shape)
    check("rms_norm", input, inner, None if weight is None else weight.to(input.dtype))
    eps = finfo(input.dtype).eps if eps is None else eps
    return RmsNorm.apply(input, weight, None, None, None, sizes, (1,), eps)
