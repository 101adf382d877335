"""Step 86e: BatchNorm for images

An image batch has the shape [n, channels, height, width]. Normalise over the batch alone, as a
flattened picture would be, and every pixel of every channel gets a mean and a weight of its own:
64 of each for the demo's 8 x 8 digits, and where the pixel is always black the variance is 0. And
it undoes what a convolution is good for (step 84a): one filter looks for the same thing at every
place, and what is large at one place has to stay comparable with what is large at another.

So a channel is one thing, wherever it is looked for. Mean and variance are taken over the batch
and over all places:

    [n, channels, height, width] -> [n, channels, places]      means over dimensions 0 and 2
    [n, channels]                -> [n, channels, 1]           the same: one place

One shape with three dimensions is enough for rows, sequences, images and volumes. The classes
BatchNorm1d and 2d differ only in what they refuse.

A channel of 32 images of 28 x 28 has 25,088 values: the mean is exact even for small batches, and
there may be a batch of one.

The trap: weight and bias have the shape [channels], and broadcasting aligns from the right. Beside
[n, channels, places] they need the shape [channels, 1].

Changed: Normalization takes a shape; batch_norm and _BatchNorm. New: BatchNorm2d.
Try: means over (0,) alone in batch_norm.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import bump_version
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.creation import ones, zeros
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

    def inner(ctx) -> tuple[int, ...]:
        """The shape of weight and bias beside an x of shape `shape`."""
        return (*ctx.shape[1:-1], 1)

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

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        inner = ctx.inner()
        c, e = (a.reshape(ctx.shape) for a in (x, g))
        if not ctx.fixed:
            m, v = ctx.moments(c)  # again: on Tensors, they have a derivative
            r = 1 / ctx.xp.sqrt(v + ctx.eps)
        h = (c - m) * r
        gw, gb = (ctx.call(SumTo, a, inner) for a in (e * h, e))
        e = e if weight is None else e * weight.reshape(inner)
        if not ctx.fixed:
            e = e - ctx.means(e) - h * ctx.means(e * h)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

    def back(ctx, y: Any, like: Any) -> Any:
        """y in the shape of `like`, an input; None for one that is absent."""
        return None if like is None else y.reshape(like.shape)

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels, m] has one mean for each channel."""


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
    momentum = momentum if training else None
    return NativeBatchNorm.apply(input, *others, sizes, (0, 2), eps, momentum)


class NormModule(Module):
    """Base of the layers: weight and bias, or None."""

    def make_affine(self, size: Any, affine: bool, bias: bool, options: dict) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        self.register_parameter("weight", Parameter(ones(size, **options)) if affine else None)
        bias = affine and bias
        self.register_parameter("bias", Parameter(zeros(size, **options)) if bias else None)


class _BatchNorm(NormModule):
    """batch_norm, with a weight and a bias for each channel, and running statistics as buffers.

    Without track_running_stats, the statistics are those of the batch in evaluation, too. With
    momentum None the running ones are the mean of all that were seen.
    Raises:
        ValueError: for an input with another number of dimensions.
    """

    dims: tuple[int, ...]  # numbers of dimensions that an input may have

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        options = {"device": device, "dtype": dtype}
        self.make_affine(num_features, affine, bias, options)
        mean, var = zeros(num_features, **options), ones(num_features, **options)
        buffers = {"running_mean": mean, "running_var": var}
        buffers["num_batches_tracked"] = tensor(0, device=device)
        for name, value in buffers.items():
            self.register_buffer(name, value if track_running_stats else None)

    def check_input(self, input: Tensor) -> None:
        if input.array.ndim not in self.dims:
            expected = " or ".join(f"{n}D" for n in self.dims)
            raise ValueError(f"expected {expected} input (got {input.array.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        running, momentum = (self.running_mean, self.running_var), self.momentum or 0.0
        if self.training and not self.track_running_stats:
            running = (None, None)
        elif self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        training = self.training or self.running_mean is None
        return batch_norm(input, *running, self.weight, self.bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batches of channels, [n, c], or of sequences, [n, c, length]."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batches of images: [n, c, height, width]."""

    dims = (4,)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.random import manual_seed, randn

    images = load_digits()[0][:200].unsqueeze(1)
    flat = batch_norm(images.flatten(1), None, None, training=True)
    layer = BatchNorm2d(1)
    y = layer(images)
    print("pixels that are the same in all images:", int((images.var((0, 1)) == 0).sum()), "of 64")
    # -> pixels that are the same in all images: 11 of 64
    print(f"a dark and a bright pixel before: {images[0, 0, 0, 1]:.2f} {images[0, 0, 0, 3]:.2f}")
    # -> a dark and a bright pixel before: 0.00 0.81
    print(f"pixel by pixel: {flat[0, 1]:.2f} {flat[0, 3]:.2f}", end=", ")
    print(f"by channel: {y[0, 0, 0, 1]:.2f} {y[0, 0, 0, 3]:.2f}")
    # -> pixel by pixel: -0.39 0.45, by channel: -0.80 1.34
    print(f"mean {y.mean():.4f}, variance {y.var(correction=0):.4f}", list(layer.weight.shape))
    # -> mean -0.0000, variance 0.9999 [1]
    print("one image:", BatchNorm2d(1)(images[:1]).std().item() > 0.9)  # -> one image: True

    manual_seed(0)
    x = randn(8, 3)
    print(BatchNorm1d(3)(x).shape, BatchNorm1d(3)(randn(8, 3, 5)).shape)
    # -> tinytorch.Size([8, 3]) tinytorch.Size([8, 3, 5])
    try:
        BatchNorm2d(3)(x)
    except ValueError as error:
        print(error)  # -> expected 4D input (got 2D input)

    x = randn(3, 2, 2, 3, dtype=float64).requires_grad_()
    w, b = (randn(2, dtype=float64).requires_grad_() for _ in "wb")
    mean, var = zeros(2, dtype=float64), ones(2, dtype=float64)

    def training(x, w, b):
        return batch_norm(x, None, None, w, b, True)

    def use(x, w, b):
        return batch_norm(x, mean, var, w, b)

    def bare(x):
        return batch_norm(x, None, None, None, None, True)

    print(gradcheck(training, (x, w, b)), gradgradcheck(training, (x, w, b)))  # -> True True
    print(gradcheck(use, (x, w, b)), gradcheck(bare, (x,)))  # -> True True
