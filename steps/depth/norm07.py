"""Step norm07: Normalisation in fewer passes: mean and variance from sums of rows

The formula of step norm02 reads and writes a whole batch in each of its operations. A batch of
[64, 32, 28, 28] has 6 MB, more than the fast part of any cache: what costs time are these passes,
not the arithmetic. So steps norm07 to norm10 compute the same numbers in fewer passes. To
understand a normalisation the form of step norm06 is enough, and you may go on with step norm11.
Look at x as rows, the last dimension: 2,048 rows of 784.

The sum of each row is a product with ones (four times as fast as `sum`, step reduce05), and the sum
of its squares is the product of the row with itself. Neither writes an array as large as x. A mean
over `dims`, whatever they are, is a mean of those sums: of 2,048 numbers.

    mean = sum of x / n                var = sum of x^2 / n - mean^2

m and r are then numbers for each row, [rows, 1]; where a mean belongs to several rows, they are
repeated.

The trap: the variance subtracts two nearly equal numbers if the mean is large. At mean 1,000 and
variance 0.01 nothing of float32's seven digits is left: it may come out negative. So where the mean
is more than twice the deviation, it is subtracted from the rows first, which costs a pass.

Changed: Normalization.forward and moments. New: rows, per_row, mean; dot_rows.
Try: leave that subtraction out.
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

    Arrays are computed as rows of n elements. A mean over `dims` is a mean of the rows' sums.
    """

    saves = 0, 1, 2, None, None

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
            m, v = ctx.moments(rows)
        if momentum is not None:
            n = math.prod(shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        h, inner = ((rows - m) * r).reshape(shape), ctx.inner()
        h = h if weight is None else h * weight.reshape(inner)
        return ctx.back(h if bias is None else h + bias.reshape(inner), x)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        shape, inner = ctx.shape, ctx.inner()
        c, e = (a.reshape(shape) for a in (x, g))
        if ctx.fixed:
            c, r = c - m.reshape(*shape[:-1], 1), r.reshape(*shape[:-1], 1)
        else:
            c = c - ctx.means(c)
            r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)  # again: on Tensors, with derivatives
        h = c * r
        gw, gb = (ctx.call(SumTo, a, inner) for a in (e * h, e))
        e = e if weight is None else e * weight.reshape(inner)
        if not ctx.fixed:
            e = e - ctx.means(e) - h * ctx.means(e * h)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

    def inner(ctx) -> tuple[int, ...]:
        """The shape of weight and bias beside an x of shape `shape`."""
        return ctx.shape[1:] if len(ctx.shape) == 2 else (*ctx.shape[1:-1], 1)

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
        """A number for each channel as one for each row."""
        value = value.reshape(ctx.shape[1:-1])
        return ctx.xp.broadcast_to(value, ctx.shape[:-1]).reshape(-1, 1)

    def mean(ctx, sums: Any) -> Any:
        """The mean over `dims`, for each row, from the sum of each row."""
        sums = sums / math.prod(ctx.shape[dim] for dim in ctx.dims)
        if len(ctx.dims) == 1:
            return sums
        means = sums.reshape(ctx.shape[:-1]).sum(axis=ctx.dims[:-1], keepdims=True)
        return ctx.xp.broadcast_to(means, ctx.shape[:-1]).reshape(-1, 1)

    def moments(ctx, rows: Any) -> tuple:
        """Mean and variance, for each row. If a mean is large, the difference of two sums would
        leave only rounding errors: it is subtracted from the rows first."""
        m = ctx.mean(rows @ ctx.xp.ones((rows.shape[1], 1), rows.dtype))
        v = ctx.mean(dot_rows(rows, rows)) - m * m
        if bool((4 * v < m * m).any()):
            v = ctx.mean(dot_rows(rows - m, rows - m))
        return m, v

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value[: ctx.shape[1], 0] - running
            running += momentum * value
            bump_version(running)


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

    def as_before(x):  # step norm06
        m = x.mean(axis=(0, 2), keepdims=True)
        return m, np.square(x - m).mean(axis=(0, 2), keepdims=True)

    manual_seed(0)
    images = randn(64, 32, 28, 28)
    node = batch_norm(images.requires_grad_(), None, None, training=True).grad_fn
    x = images.array.reshape(64, 32, 784)
    rows = node.rows(x)
    print("mean and variance:", milliseconds(as_before, x))  # -> ...
    print("from sums of rows:", milliseconds(node.moments, rows))  # -> ...
    (m, v), (new_m, new_v) = as_before(x), node.moments(rows)
    print("for each of", len(rows), "rows:", new_m.shape, new_v.shape)
    # -> for each of 2048 rows: (2048, 1) (2048, 1)
    same = [np.abs(a.ravel() - b[:32, 0]).max() < 1e-5 for a, b in ((m, new_m), (v, new_v))]
    print("the same:", all(same))  # -> the same: True

    row = np.array([1000, 1000.1, 1000.2, 1000.3], np.float32)
    print(f"variance 0.0125 as a difference: {np.mean(row * row) - np.mean(row) ** 2:.4f}")
    # -> variance 0.0125 as a difference: -0.0625
    y = layer_norm(Tensor([row.tolist()]), (4,))
    print([round(v, 2) for v in y[0].tolist()])  # -> [-1.34, -0.45, 0.45, 1.34]

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
