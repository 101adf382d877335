"""Step conv06: Stride, padding and dilation in any number of dimensions

Step 50c has stride and padding for images. Here each dimension has its own three numbers, dilation
is the third, and padding is done on arrays:

    y[p] = sum over k of w[k] x[p * stride + k * dilation - padding]

    padding 1           0 a b c d 0     zeros around the picture, which then keeps its size
    stride 2            a b c           only every second window: a picture of half the size
                            c d e
    dilation 2          a . c . e       a window with gaps: it reaches further with as many weights

    size of y = (size of x + 2 padding - dilation (kernel - 1) - 1) // stride + 1

In the strided view two factors are all that changes: positions are `stride` times as far apart, and
the elements of a window `dilation` times. In conv_input the key of each addition becomes a slice
with a step. `padded` is the shape of the padded picture, `inside` is the key of x in it, and
`reach` is the distance from the first element of a window to its last.

The trap: the division is rounded down. With stride 2, pictures of 7 and of 8 pixels both give 3
windows of 3. In the second case the last column is in no window, and its gradient is 0.

Changed: Geometry, convolve, convolve_weight, convolve_input. New: Geometry.pad.
Try: `a` in place of `a * s` in windows. Which promises of the demo fail?
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
    """The sizes of a convolution."""

    def __init__(self, x_shape: tuple, w_shape: tuple, stride: tuple, pads: tuple, dilation: tuple):
        self.x_shape, self.w_shape, self.stride, self.dilation = x_shape, w_shape, stride, dilation
        self.kernel = w_shape[2:]
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
        """The windows of the padded x as matrices [N, C * kernel, positions]."""
        return self.windows(x).reshape(len(x), math.prod(self.w_shape[1:]), -1)


def sum_channels(g: Any) -> Any:
    """The sum of all elements of each channel: the gradient of a bias."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(2).sum(0)


def convolve(x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p * stride + k * dilation]."""
    y = w.reshape(len(w), -1) @ geo.columns(geo.pad(x))
    if bias is not None:
        y += bias.reshape(-1, 1)
    return y.reshape(geo.y_shape)


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p * stride + k * dilation]."""
    g = g.reshape(*g.shape[:2], -1)
    return (g @ geo.columns(geo.pad(x)).swapaxes(1, 2)).sum(0).reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    bias = xp.zeros(geo.x_shape[1], g.dtype) if bias is None else bias
    gx = xp.empty(geo.padded, g.dtype)
    gx[...] = bias.reshape(-1, *[1] * len(geo.kernel))
    parts = w.reshape(len(w), -1).T @ g.reshape(*g.shape[:2], -1)
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

    def geometry_of(x, w, stride=1, padding=0, dilation=1):
        pads = ((padding, padding),) * 2
        return Geometry(x.shape, w.shape, (stride,) * 2, pads, (dilation,) * 2)

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 8, 8)), rng.standard_normal((3, 2, 3, 3))
    geo = geometry_of(x, w)
    plain = convolve(x, w, None, geo)
    print("plain", plain.shape, "not padded:", geo.pad(x) is x)
    # -> plain (1, 3, 6, 6) not padded: True
    # How many windows see a pixel? Each sends a gradient of 1 back to it.
    one = np.ones((1, 1, 3, 3))
    seen = convolve_input(np.ones((1, 1, 6, 6)), one, None, geometry_of(x[:, :1], one))[0, 0]
    print("windows that see the corner:", seen[0, 0], "the middle:", seen[4, 4])
    # -> windows that see the corner: 1.0 the middle: 9.0

    geo = geometry_of(x, w, padding=1)
    print("padding 1", convolve(x, w, None, geo).shape)  # -> padding 1 (1, 3, 8, 8)
    print(np.allclose(convolve(x, w, None, geo)[..., 1:-1, 1:-1], plain))  # -> True

    geo = geometry_of(x, w, stride=2)
    print("stride 2", convolve(x, w, None, geo).shape)  # -> stride 2 (1, 3, 3, 3)
    print("every second:", np.allclose(convolve(x, w, None, geo), plain[..., ::2, ::2]))
    # -> every second: True
    gx = convolve_input(np.ones((1, 3, 3, 3)), w, None, geo)
    print("no window has the last column:", abs(gx[..., -1]).max())
    # -> no window has the last column: 0.0

    # A kernel with gaps is a larger kernel with zeros.
    geo = geometry_of(x, w, dilation=2)
    large = np.zeros((3, 2, 5, 5))
    large[..., ::2, ::2] = w
    print("dilation 2", convolve(x, w, None, geo).shape)  # -> dilation 2 (1, 3, 4, 4)
    print(np.allclose(convolve(x, w, None, geo), convolve(x, large, None, geometry_of(x, large))))
    # -> True

    # All three at once, with derivatives; and "before only".
    manual_seed(0)
    x = randn(2, 2, 7, 6, dtype=float64, requires_grad=True)
    w = randn(3, 2, 3, 2, dtype=float64, requires_grad=True)
    geo = Geometry((2, 2, 7, 6), (3, 2, 3, 2), (2, 1), ((1, 1), (2, 0)), (1, 3))

    def conv(x, w):
        return Convolution.apply(x, w, None, geo)

    print(conv(x, w).shape, gradcheck(conv, (x, w)), gradgradcheck(conv, (x, w)))
    # -> tinytorch.Size([2, 3, 4, 5]) True True
