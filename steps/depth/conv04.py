"""Step conv04: A bias for each output channel

Each output of Linear has a bias, and each output channel of a convolution should have one: without
it, a black picture gives 0 in all channels, whatever the kernels are. The bias of a channel is
added at all of its positions,

    y[n, o, p] = bias[o] + sum over c, k of w[o, c, k] x[n, c, p + k]

so its gradient is the sum of the gradients of all positions: `sum_channels`. The derivatives by x
and w stay what they are, since a constant is added. What is added to the bias is bilinear,
as before.

conv_input takes a bias too. As a gradient it needs none, but step conv08 makes a layer of it, which
does. It adds its parts to gx, so it begins with the bias there, not with 0.

The trap: the bias is an argument between w and geo, and backward returns one gradient for each
argument, in this order. It may be None; apply passes None on.

Changed: convolve, convolve_input, the three Functions. New: sum_channels.
Try: leave out .sum(0) in sum_channels. Which check of the demo notices?
"""

import importlib
import math
from operator import add
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.ops.storage import strided

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Geometry:
    """The sizes of a convolution."""

    def __init__(self, x_shape: tuple, w_shape: tuple):
        self.x_shape, self.w_shape = x_shape, w_shape
        self.kernel = w_shape[2:]
        sizes = zip(x_shape[2:], self.kernel, strict=True)
        self.out = tuple(n - k + 1 for n, k in sizes)
        self.y_shape = (x_shape[0], w_shape[0], *self.out)

    def windows(self, x: Any) -> Any:
        """A view of x: [N, C, *kernel, *out]. Windows share elements: do not write into it."""
        strides = (*x.strides, *x.strides[2:])
        return strided(x, (*x.shape[:2], *self.kernel, *self.out), strides)

    def columns(self, x: Any) -> Any:
        """The windows of x as matrices [N, C * kernel, positions]."""
        return self.windows(x).reshape(len(x), math.prod(self.w_shape[1:]), -1)


def sum_channels(g: Any) -> Any:
    """The sum of all elements of each channel: the gradient of a bias."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(2).sum(0)


def convolve(x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p + k]."""
    y = w.reshape(len(w), -1) @ geo.columns(x)
    if bias is not None:
        y += bias.reshape(-1, 1)
    return y.reshape(geo.y_shape)


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p + k]."""
    g = g.reshape(*g.shape[:2], -1)
    return (g @ geo.columns(x).swapaxes(1, 2)).sum(0).reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p + k] = bias[c] + sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    bias = xp.zeros(geo.x_shape[1], g.dtype) if bias is None else bias
    gx = xp.empty(geo.x_shape, g.dtype)
    gx[...] = bias.reshape(-1, *[1] * len(geo.kernel))
    parts = w.reshape(len(w), -1).T @ g.reshape(*g.shape[:2], -1)
    parts = parts.reshape(*gx.shape[:2], *geo.kernel, *geo.out)
    for k in np.ndindex(*geo.kernel):
        total = gx[(..., *map(slice, k, map(add, k, geo.out)))]
        total += parts[(slice(None), slice(None), *k)]
    return gx


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


class Convolution(Bilinear):
    """y = conv(x, w) + bias;   dL/dx = conv_input(g, w),   dL/dw = conv_weight(x, g)."""

    def forward(ctx, x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
        ctx.save(x, w, geo)
        return convolve(x, w, bias, geo)

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
        return convolve_input(g, w, bias, geo)

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
        return convolve_weight(x, g, geo)

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

    manual_seed(0)
    x = randn(2, 3, 5, 4, dtype=float64, requires_grad=True)
    w = randn(4, 3, 3, 2, dtype=float64, requires_grad=True)
    b = randn(4, dtype=float64, requires_grad=True)
    geo = Geometry((2, 3, 5, 4), (4, 3, 3, 2))

    def conv(x, w, b):
        return Convolution.apply(x, w, b, geo)

    print(gradcheck(conv, (x, w, b)), gradgradcheck(conv, (x, w, b)))  # -> True True
    y = conv(x, w, b)
    difference = (y - conv(x, w, None))[1, 2] - b[2]
    print("a constant in each channel:", difference.abs().max().item() < 1e-12)
    # -> a constant in each channel: True
    y.sum().backward()
    print("gradient of the bias:", b.grad.tolist())
    # -> gradient of the bias: [18.0, 18.0, 18.0, 18.0]

    # conv_input with a bias: one number for each channel of x.
    g, c = randn(2, 4, 3, 3, dtype=float64), randn(3, dtype=float64, requires_grad=True)

    def conv_input(c, g):
        return ConvolutionInput.apply(g, w, c, geo)

    print(gradcheck(lambda c: conv_input(c, g), (c,)), conv_input(c, g).shape)
    # -> True tinytorch.Size([2, 3, 5, 4])
