"""Step norm04: Channels of images, in one shape

Step 52a takes mean and variance of a channel over batch, height and width. The node of step norm02
knows rows only. One shape with three dimensions is enough for rows, sequences, images and volumes:

    [n, channels, height, width] -> [n, channels, places]      means over dimensions 0 and 2
    [n, channels]                -> [n, channels, 1]           the same: one place

weight and bias may be None now: y is then h, or h weight. A channel of 32 images of 28 x 28 has
25,088 values: its mean is exact, even in small batches.

The trap: weight and bias have the shape [channels], and broadcasting aligns from the right. Beside
[n, channels, places] they need the shape [channels, 1].

Changed: Normalization takes a shape; batch_norm.
Try: means over (0,) alone in batch_norm.
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

    Means are taken over `dims` when x has the shape `shape`, [batch, channels, n]. w and b belong
    to the channels.
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
        return (*ctx.shape[1:-1], 1)

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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.random import manual_seed, randn

    images = load_digits()[0][:200].unsqueeze(1)
    flat = batch_norm(images.flatten(1), None, None, training=True)
    y = batch_norm(images, None, None, training=True)
    print("pixels that are the same in all images:", int((images.var((0, 1)) == 0).sum()), "of 64")
    # -> pixels that are the same in all images: 11 of 64
    print(f"two bright pixels:         {images[5, 0, 0, 2]:.2f} {images[5, 0, 0, 3]:.2f}")
    # -> two bright pixels:         0.75 0.62
    print(f"normalised by pixel:       {flat[5, 2]:.2f} {flat[5, 3]:.2f}")
    # -> normalised by pixel:       1.24 -0.14
    print(f"normalised by channel:     {y[5, 0, 0, 2]:.2f} {y[5, 0, 0, 3]:.2f}")
    # -> normalised by channel:     1.17 0.84
    print(f"mean {abs(y.mean().item()):.4f}, variance {y.var(correction=0):.4f}")
    # -> mean 0.0000, variance 0.9999

    manual_seed(0)
    for shape in ((8, 3), (8, 3, 5), (8, 3, 4, 4)):
        x = randn(*shape) * 2 + 5
        y = batch_norm(x, None, None, training=True)
        dims = (0, *range(2, len(shape)))
        print(list(shape), [round(abs(v), 4) for v in y.mean(dims).tolist()])
    # -> [8, 3] [0.0, 0.0, 0.0]
    # -> [8, 3, 5] [0.0, 0.0, 0.0]
    # -> [8, 3, 4, 4] [0.0, 0.0, 0.0]

    x = randn(3, 2, 2, 3, dtype=float64).requires_grad_()
    w, b, mean = (randn(2, dtype=float64) for _ in "wbm")
    for options in (
        (None, None, w, b, True),
        (mean, mean.exp(), w, b),
        (None, None, None, b, True),
    ):

        def norm(x, options=options):
            return batch_norm(x, *options)

        print(gradcheck(norm, (x,)), gradgradcheck(norm, (x,)))
    # -> True True
    # -> True True
    # -> True True
