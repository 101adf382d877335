"""Step norm05: Layer normalisation in the package's dress

Step 58a built LayerNorm: mean and variance of each row, not of each channel. The gradient has the
formula of step norm02: only the dimensions differ over which means are taken. So it is the same
Function, which takes a shape [rows, n] for it.

weight and bias belong to the elements of a row, [n], along the dimension that the mean is taken
over: what stands at place 3 of each row means the same in all of them.

The trap: normalized_shape are the last sizes of the input, not the number of a dimension. With
(8, 8), a mean is taken over 64 numbers, and there are 64 weights.

Changed: Normalization takes [rows, n], too. New: layer_norm.
Try: layer_norm of digits whose pixels are divided by 1000. What does eps do?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
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
    """

    saves = 0, 1, 2, None, None

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.shape, ctx.dims, ctx.eps = shape, dims, eps
        ctx.fixed = momentum is None and running_mean is not None
        c, inner = x.reshape(shape), ctx.inner()
        if ctx.fixed:
            m, v = running_mean.reshape(inner), running_var.reshape(inner)
        else:
            m, v = ctx.moments(c)
        if momentum is not None:
            n = math.prod(shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        h = (c - m) * r
        h = h if weight is None else h * weight.reshape(inner)
        return (h if bias is None else h + bias.reshape(inner)).reshape(x.shape)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        inner = ctx.inner()
        c, e = (a.reshape(ctx.shape) for a in (x, g))
        if ctx.fixed:
            c = c - m
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

    def back(ctx, y: Any, like: Any) -> Any:
        """y in the shape of `like`, an input; None for one that is absent."""
        return None if like is None else y.reshape(like.shape)

    def moments(ctx, x: Any) -> tuple:
        """Mean and variance."""
        m = ctx.means(x)
        return m, ctx.means(ctx.xp.square(x - m))

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value.reshape(-1) - running
            running += momentum * value
            bump_version(running)


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels, m] has one mean for each channel."""


class NativeLayerNorm(Normalization):
    """Means over the last dimensions: [rows, n] has one mean for each row."""


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
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    def by_batch(x):
        return batch_norm(x, None, None, training=True)

    def by_row(x):
        return layer_norm(x, (6,))

    manual_seed(0)
    x = randn(4, 6) * 3 + 2
    for title, norm in (("batch_norm", by_batch), ("layer_norm", by_row)):
        changed = (norm(x[:2])[0] - norm(x)[0]).abs().max()
        print(f"{title} of a row changes with the other rows by {changed:.2f}")
    # -> batch_norm of a row changes with the other rows by 1.40
    # -> layer_norm of a row changes with the other rows by 0.00
    y = layer_norm(x.requires_grad_(), (6,))
    print("means of rows:", [round(abs(v), 3) for v in y.mean(1).tolist()])
    # -> means of rows: [0.0, 0.0, 0.0, 0.0]
    print("variances:", [round(v, 3) for v in y.var(1, correction=0).tolist()])
    # -> variances: [1.0, 1.0, 1.0, 1.0]
    print(y.grad_fn.name(), layer_norm(randn(2, 8, 8), (8, 8), randn(8, 8)).shape)
    # -> NativeLayerNormBackward0 tinytorch.Size([2, 8, 8])
    try:
        layer_norm(x, (5,))
    except RuntimeError as error:
        print(error)  # -> Given normalized_shape=[5], got input of size [4, 6]

    x = randn(3, 2, 4, dtype=float64).requires_grad_()
    w, b = (randn(2, 4, dtype=float64).requires_grad_() for _ in "wb")

    def norm(x, w, b):
        return layer_norm(x, (2, 4), w, b)

    print(gradcheck(norm, (x, w, b)), gradgradcheck(norm, (x, w, b)))  # -> True True
