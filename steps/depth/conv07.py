"""Step conv07: Groups

Every output channel sees every input channel: with 64 and 64 of them a 3 x 3 convolution has 36,864
weights. Divide the channels into G groups. The first outputs see only the first inputs, and so on:

    groups = 1    w [O, C, k, k]          each output from all inputs
    groups = G    w [O, C / G, k, k]      G convolutions side by side, and 1 / G of the weights
    groups = C    w [C, 1, k, k]          "depthwise": each channel has a kernel of its own

A depthwise convolution does not mix channels, and a convolution with 1 x 1 kernels only mixes
channels. One after the other they have 64 * 9 + 64 * 64 = 4,672 weights instead of 36,864.
MobileNet is built this way.

As matrices, the groups are one more dimension in front: a batch of products. So Geometry says in
one place how each of the three arrays becomes matrices (columns, outputs, weights), and the
formulas become shorter than before.

The trap: the second dimension of w is C / G, not C. PyTorch's message about it is the first one
that most people see: "Given groups=1, weight of size [...], expected input to have 3 channels".

Changed: Geometry, convolve, convolve_weight, convolve_input. New: Geometry.outputs, weights.
Try: groups 1 instead of 2 in the demo's first Geometry. What does reshape make of the sizes?
"""

import importlib
import math
from operator import mul
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.ops.reduction import wide
from tinytorch.ops.storage import strided

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Geometry:
    """The sizes of a convolution, and how its arrays become matrices."""

    def __init__(
        self,
        x_shape: tuple,
        w_shape: tuple,
        stride: tuple,
        pads: tuple,
        dilation: tuple,
        groups: int,
    ):
        self.x_shape, self.w_shape, self.stride, self.dilation = x_shape, w_shape, stride, dilation
        self.groups, self.kernel = groups, w_shape[2:]
        sizes = zip(x_shape[2:], pads, strict=True)
        self.padded = (*x_shape[:2], *(before + n + after for n, (before, after) in sizes))
        sizes = zip(x_shape[2:], pads, strict=True)
        self.inside = (..., *(slice(before, before + n) for n, (before, _) in sizes))
        self.reach = tuple((k - 1) * d for k, d in zip(self.kernel, dilation, strict=True))
        sizes = zip(self.padded[2:], self.reach, stride, strict=True)
        self.out = tuple((n - reach - 1) // s + 1 for n, reach, s in sizes)
        self.y_shape = (x_shape[0], w_shape[0], *self.out)

    def pad(self, x: Any) -> Any:
        """x with zeros around it."""
        if x.shape == self.padded:
            return x
        out = device_of(x).xp.zeros(self.padded, x.dtype)
        out[self.inside] = x
        return out

    def windows(self, x: Any) -> Any:
        """A view of the padded x: [N, C, *kernel, *out]. Windows share elements: do not write into
        it."""
        within = zip(x.strides[2:], self.dilation, strict=True)
        moves = zip(x.strides[2:], self.stride, strict=True)
        strides = (*x.strides[:2], *(a * d for a, d in within), *(a * s for a, s in moves))
        return strided(x, (*x.shape[:2], *self.kernel, *self.out), strides)

    def columns(self, x: Any) -> Any:
        """The windows of the padded x as matrices [N, groups, C * kernel, positions]."""
        return self.windows(x).reshape(len(x), self.groups, math.prod(self.w_shape[1:]), -1)

    def outputs(self, y: Any) -> Any:
        """A view of y as [N, groups, O, positions]."""
        n, o = self.y_shape[:2]
        return y.reshape(n, self.groups, o // self.groups, -1)

    def weights(self, w: Any) -> Any:
        """w as matrices [groups, O, C * kernel]."""
        return w.reshape(self.groups, len(w) // self.groups, -1)


def sum_channels(g: Any) -> Any:
    """The sum of all elements of each channel: the gradient of a bias."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(2).sum(0)


def convolve(x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p * stride + k * dilation]."""
    y = geo.weights(w) @ geo.columns(geo.pad(x))
    if bias is not None:
        y += bias.reshape(geo.groups, -1, 1)
    return y.reshape(geo.y_shape)


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p * stride + k * dilation]."""
    gw = geo.outputs(g) @ geo.columns(geo.pad(x)).swapaxes(2, 3)
    return gw.sum(0).reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    bias = xp.zeros(geo.x_shape[1], g.dtype) if bias is None else bias
    gx = xp.empty(geo.padded, g.dtype)
    gx[...] = bias.reshape(-1, *[1] * len(geo.kernel))
    parts = geo.weights(w).swapaxes(1, 2) @ geo.outputs(g)
    parts = parts.reshape(*gx.shape[:2], *geo.kernel, *geo.out)
    for k in np.ndindex(*geo.kernel):
        sizes = zip(map(mul, k, geo.dilation), geo.stride, geo.out, strict=True)
        total = gx[(..., *(slice(a, a + (n - 1) * s + 1, s) for a, s, n in sizes))]
        total += parts[(slice(None), slice(None), *k)]
    return xp.ascontiguousarray(gx[geo.inside])


class Bilinear(Function):
    """A form of convolution. Its two derivatives are the other two forms."""

    saves = 0, 1

    def name(ctx) -> str:
        return "ConvolutionBackward0"

    def save(ctx, a: Any, b: Any, geo: Geometry) -> None:
        """Keeps each argument that the derivative by the other one needs."""
        need_a, need_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if need_b else None, b if need_a else None)
        ctx.geo = geo


def in_float32(function: Any, *arrays: Any, geo: Geometry) -> Any:
    """function(*arrays, geo); halves are added up as float32, and rounded once."""
    result = function(*(x if x is None else wide(x) for x in arrays), geo)
    return result.astype(arrays[0].dtype, copy=False)


class Convolution(Bilinear):
    """y = conv(x, w) + bias;   dL/dx = conv_input(g, w),   dL/dw = conv_weight(x, g)."""

    def forward(ctx, x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
        ctx.save(x, w, geo)
        return in_float32(convolve, x, w, bias, geo=geo)

    def backward(ctx, g: Any) -> Any:
        (x, w), (need_x, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, w, None, ctx.geo) if need_x else None,
            ctx.call(ConvolutionWeight, x, g, ctx.geo) if need_w else None,
            sum_channels(g) if need_bias else None,
        )


class ConvolutionInput(Bilinear):
    """x = conv_input(g, w) + bias;   dL/dg = conv(u, w),   dL/dw = conv_weight(u, g)."""

    def forward(ctx, g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
        ctx.save(g, w, geo)
        return in_float32(convolve_input, g, w, bias, geo=geo)

    def backward(ctx, u: Any) -> Any:
        (g, w), (need_g, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(Convolution, u, w, None, ctx.geo) if need_g else None,
            ctx.call(ConvolutionWeight, u, g, ctx.geo) if need_w else None,
            sum_channels(u) if need_bias else None,
        )


class ConvolutionWeight(Bilinear):
    """w = conv_weight(x, g);   dL/dx = conv_input(g, v),   dL/dg = conv(x, v)."""

    def forward(ctx, x: Any, g: Any, geo: Geometry) -> Any:
        ctx.save(x, g, geo)
        return in_float32(convolve_weight, x, g, geo=geo)

    def backward(ctx, v: Any) -> Any:
        (x, g), (need_x, need_g, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, v, None, ctx.geo) if need_x else None,
            ctx.call(Convolution, x, v, None, ctx.geo) if need_g else None,
        )


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 6, 5, 5)), rng.standard_normal((4, 3, 3, 3))
    b = rng.standard_normal(4)
    rest = (1, 1), ((0, 0), (0, 0)), (1, 1)
    geo = Geometry(x.shape, w.shape, *rest, 2)
    y = convolve(x, w, b, geo)
    print("weights", geo.weights(w).shape, "columns", geo.columns(x).shape)
    # -> weights (2, 2, 27) columns (2, 2, 27, 9)

    half = Geometry((2, 3, 5, 5), (2, 3, 3, 3), *rest, 1)
    first = convolve(x[:, :3], w[:2], b[:2], half)
    second = convolve(x[:, 3:], w[2:], b[2:], half)
    print("two, side by side:", np.allclose(y, np.concatenate([first, second], 1)))
    # -> two, side by side: True

    # Depthwise, then 1 x 1.
    x = rng.standard_normal((1, 64, 8, 8))
    depth, point = rng.standard_normal((64, 1, 3, 3)), rng.standard_normal((64, 64, 1, 1))
    y = convolve(x, depth, None, Geometry(x.shape, depth.shape, *rest, 64))
    y = convolve(y, point, None, Geometry(y.shape, point.shape, *rest, 1))
    print(y.shape, "weights:", depth.size + point.size, "instead of", 64 * 64 * 9)
    # -> (1, 64, 6, 6) weights: 4672 instead of 36864

    manual_seed(0)
    x = randn(2, 4, 4, 3, dtype=float64, requires_grad=True)
    w = randn(6, 2, 2, 2, dtype=float64, requires_grad=True)
    geo = Geometry((2, 4, 4, 3), (6, 2, 2, 2), (1, 2), ((1, 1), (0, 0)), (1, 1), 2)

    def conv(x, w):
        return Convolution.apply(x, w, None, geo)

    print(gradcheck(conv, (x, w)), gradgradcheck(conv, (x, w)))  # -> True True
