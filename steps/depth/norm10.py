"""Step norm10: LayerNorm in pieces that fit the cache

A Transformer calls LayerNorm twice in each block, on short rows: [2048, 128]. Here NumPy has a
weakness. To multiply each row by a number of its own it starts its inner loop 2,048 times, for 128
elements each, and starting takes longer than multiplying. The demo measures it.

BLAS has no such loop. A product of [rows, 2] and [2, n],

    [s, t] @ [w, b]  =  s w + t b,

spreads two numbers for each row, and weight and bias, into a whole array, in half the time of one
such multiplication. What then remains are operations on arrays of the same shape.

And 1 MB each for x, g, the result and what is between them does not fit the cache next to the
processor. So the rows are taken in pieces (`parts`), as the optimizers' parameters were (step
rules08): what one operation writes, the next one finds in the cache, and writes into (`*=`, `+=`)
instead of into new memory. The sums over columns are added up piece by piece.

The trap: `y[part]` of a slice is a view. Writing into it fills y; with a list of row numbers in
place of the slice it would fill a copy.

Changed: combine, Normalization.backward. New: parts, products.
Try: other values of limit in `parts`: 1,000, or rows.size.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.reduction import Mean

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
    far = False  # the mean is large beside the deviations

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.shape, ctx.dims, ctx.eps = shape, dims, eps
        ctx.fixed = momentum is None and running_mean is not None
        rows = ctx.rows(x)
        if ctx.fixed:
            m, v = ctx.per_row(running_mean), ctx.per_row(running_var)
        else:
            rows, m, v = ctx.moments(rows)
        if momentum is not None:
            n = math.prod(shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
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
                slope, mean = ctx.mean(w * products), ctx.mean(w * sums)
                terms += [(rows, 0, -r * r * slope), (None, 0, r * (r * m * slope - mean))]
            gx = ctx.back(ctx.combine(columns, *terms), x)
        return gx, ctx.back(gw, weight), ctx.back(gb, bias)

    def formula(ctx, g: Tensor, x: Tensor, weight: Any, bias: Any, m: Any, r: Tensor) -> tuple:
        """backward as the formula says it: m and r, too, are differentiated."""
        shape = ctx.shape
        inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)
        c, e = (a.reshape(shape) for a in (x, g))
        if ctx.fixed:
            c, r = c - m.reshape(*shape[:-1], 1), r.reshape(*shape[:-1], 1)
        else:
            c = c - ctx.means(c)
            r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)
        h = c * r
        gw, gb = (ctx.call(SumTo, a, inner) for a in (e * h, e))
        e = e if weight is None else e * weight.reshape(inner)
        if not ctx.fixed:
            e = e - ctx.means(e) - h * ctx.means(e * h)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)

    # The parts of the computation on rows.

    def rows(ctx, x: Any) -> Any:
        return x.reshape(math.prod(ctx.shape[:-1]), ctx.shape[-1])

    def back(ctx, rows: Any, like: Any) -> Any:
        """Rows in the shape of `like`, an input; None for one that is absent."""
        return None if like is None else rows.reshape(like.shape)

    def per_row(ctx, value: Any) -> Any:
        """A number for each channel as one for each row; 1 for what belongs to the elements."""
        if value is None or len(ctx.shape) == 2:
            return 1
        value = value.reshape(ctx.shape[1:-1])
        return ctx.xp.broadcast_to(value, ctx.shape[:-1]).reshape(-1, 1)

    def columns(ctx, rows: Any, weight: Any, bias: Any = None) -> Any:
        """weight and bias, one below the other, where they belong to the elements; else ones."""
        columns = ctx.xp.ones((2, rows.shape[1]), rows.dtype)
        for i, value in enumerate((weight, bias)):
            if value is not None and len(ctx.shape) == 2:
                columns[i] = value.reshape(-1)
        return columns

    def mean(ctx, sums: Any) -> Any:
        """The mean over `dims`, for each row, from the sum of each row."""
        sums = sums / math.prod(ctx.shape[dim] for dim in ctx.dims)
        if len(ctx.dims) == 1:
            return sums
        means = sums.reshape(ctx.shape[:-1]).sum(axis=ctx.dims[:-1], keepdims=True)
        return ctx.xp.broadcast_to(means, ctx.shape[:-1]).reshape(-1, 1)

    def moments(ctx, rows: Any) -> tuple:
        """The rows, and their mean and variance. If a mean is large, the difference of two sums
        would leave only rounding errors: it is subtracted from the rows first."""
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
            running += momentum * value
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
    """
    shape = input.array.shape
    sizes = (*shape[:2], math.prod(shape[2:]))
    others = weight, bias, running_mean, running_var
    return NativeBatchNorm.apply(input, *others, sizes, (0, 2), eps, momentum if training else None)


@checked
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As batch_norm, with means over groups of the channels of one item (Wu and He, 2018).

    Raises:
        RuntimeError: there are no channels, or groups of different sizes.
    """
    shape = input.array.shape
    if len(shape) < 2 or shape[1] % as_integer(num_groups):
        raise RuntimeError(
            f"Expected at least 2 dimensions, and the number of channels to be divisible by "
            f"num_groups ({num_groups}), but got input of shape {list(shape)}"
        )
    sizes = (shape[0], num_groups, shape[1] // num_groups, math.prod(shape[2:]))
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
        RuntimeError: sizes do not fit.
    """
    _, sizes = last_sizes(input, normalized_shape)
    return NativeLayerNorm.apply(input, weight, bias, None, None, sizes, (1,), eps)


if __name__ == "__main__":
    import time

    import numpy as np

    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.memory")  # keeps freed memory (step nll04)

    def milliseconds(function, *args):
        best = 1e9
        for _ in range(9):
            start = time.perf_counter()
            function(*args)
            best = min(best, time.perf_counter() - start)
        return f"{best * 1000:.1f} ms"

    rng = np.random.default_rng(0)
    x, y = rng.random((2, 256, 128), np.float32)
    s, w = rng.random((256, 1), np.float32), rng.random((2, 128), np.float32)
    pair, out = np.concatenate([s, s], axis=1), np.empty_like(x)

    def a_hundred_times(function, *operands):
        for _ in range(100):
            function(*operands, out=out)

    print("256 rows of 128, a hundred times:")
    print("  x * y, of one shape    ", milliseconds(a_hundred_times, np.multiply, x, y))  # -> ...
    print("  x * s, a number a row  ", milliseconds(a_hundred_times, np.multiply, x, s))  # -> ...
    print("  [s, t] @ [w, b]        ", milliseconds(a_hundred_times, np.matmul, pair, w))  # -> ...

    class Whole(NativeLayerNorm):
        """As in step norm09."""

        def combine(ctx, columns, *terms):
            total = 0
            for a, s, t in terms:
                factor = s * columns[0] + t * columns[1]
                total = total + (factor if a is None else a * factor)
            return total

        def parts(ctx, rows):
            return [slice(None)]

    manual_seed(0)
    x, g = randn(2048, 128).requires_grad_(), rng.random((2048, 128), np.float32)
    weight, bias = (randn(128).requires_grad_() for _ in "wb")

    def both_ways(kind):
        y = kind.apply(x, weight, bias, None, None, (2048, 128), (1,), 1e-5)
        return y.detach().numpy(), *y.grad_fn.backward(g)

    print("whole: ", milliseconds(both_ways, Whole))  # -> ...
    print("pieces:", milliseconds(both_ways, NativeLayerNorm))  # -> ...
    pairs = zip(both_ways(Whole), both_ways(NativeLayerNorm), strict=True)
    print("the same:", all(np.abs(a - b).max() < 1e-3 for a, b in pairs))  # -> the same: True

    # Every kind, and its gradient.
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    x = randn(3, 4, 2, dtype=float64).requires_grad_()
    w, b, mean, var = (randn(4, dtype=float64).exp() for _ in range(4))

    def training(x, w, b):
        return batch_norm(x, mean, var, w, b, True, 0.0)

    def in_use(x, w, b):
        return batch_norm(x, mean, var, w, b)

    def groups(x, w, b):
        return group_norm(x, 2, w, b)

    def layers(x, w, b):
        return layer_norm(x.transpose(1, 2), (4,), w, b)

    w.requires_grad_()
    b.requires_grad_()
    for norm in (training, in_use, groups, layers):
        print(norm.__name__, gradcheck(norm, (x, w, b)), gradgradcheck(norm, (x, w, b)))
    # -> training True True
    # -> in_use True True
    # -> groups True True
    # -> layers True True
