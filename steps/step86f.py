"""Step 86f: LayerNorm, over the numbers of one example

BatchNorm makes the rows of a batch depend on each other, needs many of them, and behaves
differently in training and in use. For sentences this is worst: they have different lengths, come one
at a time, and a network that writes makes one word after the other.

Layer normalisation (Ba et al., 2016) looks along the other dimension of the table. Each row, all
the numbers that the network has about one example, has mean and variance of its own:

                 channels                        channels
              +-----------+                   +-----------+
        batch |  |  |  |  |   BatchNorm  batch|-----------|  LayerNorm
              |  |  |  |  |                   |-----------|
              +-----------+                   +-----------+

There is nothing to remember, and training and use are the same. The gradient has the same formula:
only the dimensions differ over which means are taken. So it is the same Function.

weight and bias now belong to the elements of a row, [n], along the dimension that the mean is
taken over: two rows differ in nothing, two elements of a row do.

The trap: normalized_shape are the last sizes of the input, not one number of a dimension. With
(8, 8), a mean is taken over 64 numbers, and there are 64 weights.

Changed: Normalization takes [rows, n], too. New: layer_norm and LayerNorm.
Try: LayerNorm(64) on digits whose pixels are divided by 1000.
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

    The kinds differ in `dims`, over which means are taken when x has the shape `shape`. The last
    dimension is one of them. w and b belong to it where `shape` is [rows, n], and else to those
    between the first and the last: [batch, channels, n].
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
        return ctx.shape[1:] if len(ctx.shape) == 2 else (*ctx.shape[1:-1], 1)

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


class NativeLayerNorm(Normalization):
    """Means over the last dimensions: [rows, n] has one mean for each row."""


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


def last_sizes(input: Tensor, normalized_shape: Any) -> tuple[tuple, tuple]:
    """normalized_shape as a tuple, and `input` as rows of so many elements: [rows, n].

    Raises:
        RuntimeError: the last dimensions have other sizes.
    """
    shape, inner = input.array.shape, tuple(normalized_shape)
    if not inner or shape[-len(inner) :] != inner:
        raise RuntimeError(f"Given normalized_shape={list(inner)}, got input of size {list(shape)}")
    return inner, (math.prod(shape[: len(shape) - len(inner)]), math.prod(inner))


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


class NormModule(Module):
    """Base of the layers: weight and bias, or None."""

    def make_affine(self, size: Any, affine: bool, bias: bool, options: dict) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        self.register_parameter("weight", Parameter(ones(size, **options)) if affine else None)
        bias = affine and bias
        self.register_parameter("bias", Parameter(zeros(size, **options)) if bias else None)


class LayerNorm(NormModule):
    """layer_norm, with a weight and a bias of the shape normalized_shape."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        single = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if single else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        options = {"device": device, "dtype": dtype}
        self.make_affine(self.normalized_shape, elementwise_affine, bias, options)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


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
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    x = randn(4, 6) * 3 + 2
    batch, layer = BatchNorm1d(6), LayerNorm(6)
    for title, norm in (("BatchNorm", batch), ("LayerNorm", layer)):
        alone, among = norm(x[:2])[0], norm(x)[0]
        print(title, "changes with the other rows by", f"{(alone - among).abs().max():.2f}")
    # -> BatchNorm changes with the other rows by 1.40
    # -> LayerNorm changes with the other rows by 0.00
    # -> LayerNorm changes with the other rows by 0.00
    y = layer(x)
    print("means of rows:", [round(v, 3) + 0.0 for v in y.mean(1).tolist()], end=" ")
    print("variances:", [round(v, 3) for v in y.var(1, correction=0).tolist()])
    # -> means of rows: [0.0, 0.0, 0.0, 0.0] variances: [1.0, 1.0, 1.0, 1.0]
    print(y.grad_fn.name(), (layer.eval()(x) - y).abs().max().item())
    # -> NativeLayerNormBackward0 0.0

    images = LayerNorm((8, 8), elementwise_affine=False)
    print(images(randn(2, 8, 8)).shape, images.weight, LayerNorm((8, 8)).weight.shape)
    # -> tinytorch.Size([2, 8, 8]) None tinytorch.Size([8, 8])
    try:
        layer_norm(x, (5,))
    except RuntimeError as error:
        print(error)  # -> Given normalized_shape=[5], got input of size [4, 6]

    x = randn(3, 2, 4, dtype=float64).requires_grad_()
    w, b = (randn(2, 4, dtype=float64).requires_grad_() for _ in "wb")

    def norm(x, w, b):
        return layer_norm(x, (2, 4), w, b)

    print(gradcheck(norm, (x, w, b)), gradgradcheck(norm, (x, w, b)))  # -> True True
