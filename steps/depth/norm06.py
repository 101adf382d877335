"""Step norm06: Group normalisation, and what all normalisations share

Large pictures leave room for two or four images in memory, too few for the means of BatchNorm. One
image alone has many numbers, but LayerNorm would mix all channels: edges and colours.

Group normalisation (Wu and He, 2018) divides the channels of one image into groups, and takes
means over each group. All the others are such a choice:

    x as [n, groups, channels of a group, places]      means over
    BatchNorm       a channel of all images            the batch and places
    InstanceNorm    a channel of one image             places              groups = channels
    GroupNorm       a group of one image               channels of a group, places
    LayerNorm       one image                          the same            groups = 1

What is reduced together gets mean 0 and variance 1 together. To choose one, ask which numbers are
comparable with each other, and which must not influence each other.

Only weight and bias do not follow the groups: they belong to the channels, [channels]. In the
shape above that is [groups, channels of a group, 1]: between the first dimension and the last.

The trap: group_norm(x, 1) and layer_norm(x, (c, h, w)) have the same means, but c weights, or
c h w of them.

New: group_norm.
Try: group_norm(x, 4) of images that are brighter by a constant in one channel.
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
    if len(shape) < 2 or shape[1] % num_groups:
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
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    # Images whose channels have the means 0, 1, 2, 3; the second image is brighter by 10.
    x = randn(2, 4, 8, 8) + Tensor([0.0, 1.0, 2.0, 3.0]).reshape(4, 1, 1)
    x[1] += 10

    def show(title, y):
        means = [[round(v, 1) + 0.0 for v in row] for row in y.mean((2, 3)).tolist()]
        print(f"{title:12}", *means)

    print("the means of the four channels of both images:")
    show("x", x)
    # -> x            [0.1, 0.9, 2.0, 2.8] [9.9, 10.8, 12.0, 12.8]
    show("batch_norm", batch_norm(x, None, None, training=True))
    # -> batch_norm   [-1.0, -1.0, -1.0, -1.0] [1.0, 1.0, 1.0, 1.0]
    for groups in (4, 2, 1):
        show(f"{groups} groups", group_norm(x, groups))
    # -> 4 groups     [0.0, 0.0, 0.0, 0.0] [0.0, 0.0, 0.0, 0.0]
    # -> 2 groups     [-0.4, 0.4, -0.4, 0.4] [-0.4, 0.4, -0.4, 0.4]
    # -> 1 groups     [-0.9, -0.4, 0.4, 0.9] [-1.0, -0.4, 0.4, 1.0]
    show("layer_norm", layer_norm(x, (4, 8, 8)))
    # -> layer_norm   [-0.9, -0.4, 0.4, 0.9] [-1.0, -0.4, 0.4, 1.0]
    print(group_norm(x.requires_grad_(), 2).grad_fn.name())  # -> NativeGroupNormBackward0
    for wrong in (x[0, 0, 0], x[:, :3]):
        try:
            group_norm(wrong, 2)
        except RuntimeError as error:
            print(str(error).split("got ")[1])
    # -> input of shape [8]
    # -> input of shape [2, 3, 8, 8]

    x = randn(2, 4, 3, dtype=float64).requires_grad_()
    w, b = (randn(4, dtype=float64).requires_grad_() for _ in "wb")

    def norm(x, w, b):
        return group_norm(x, 2, w, b)

    print(gradcheck(norm, (x, w, b)), gradgradcheck(norm, (x, w, b)))  # -> True True
