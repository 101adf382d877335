"""Step conv05: Convolution of float16, summed as float32

With float16 ("halves") the gradient of step conv04 is wrong. A pixel that is in 3,000 windows
receives 3,000 gradients of 1, but conv_input gives it 2,048: in float16, 2,048 + 1 is 2,048,
because the next number is 2,050. NumPy's products of halves are also many times as slow, as no
library computes them.

So halves become float32 before the sums, and the result is rounded once, at the end, as in step
61f. `in_float32` does this around each of the three functions. float32 and float64 pass through
it as they are: only halves have 2 bytes.

The trap: a sum of halves may be larger than the largest half, 65,504. Rounded at the end it is inf,
as in PyTorch. The larger type helps against parts that are lost, not against that.

Changed: the forward of the three Functions. New: in_float32.
Try: let in_float32 return function(*arrays, geo) for all types. Which lines of the demo change?
"""

import importlib
import math
from operator import add
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
    import timeit

    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    # The pixel in the middle is in 3,000 windows.
    line = Geometry((1, 1, 5999), (1, 1, 3000))
    g, w = np.ones((1, 1, 3000), np.float16), np.ones((1, 1, 3000), np.float16)
    print("as halves:", convolve_input(g, w, None, line)[0, 0, 2999])  # -> as halves: 2.048e+03
    x = ConvolutionInput.apply(tensor(g), tensor(w), None, line)
    print("as float32:", x[0, 0, 2999].item(), x.dtype)  # -> as float32: 3000.0 tinytorch.float16

    # A convolution of halves, and its gradients, against float32.
    manual_seed(0)
    geo = Geometry((4, 8, 14, 14), (16, 8, 3, 3))
    inputs = [randn(*s) for s in ((4, 8, 14, 14), (16, 8, 3, 3), (16,))]

    def gradients(convert):
        leaves = [convert(t).requires_grad_() for t in inputs]
        y = Convolution.apply(*leaves, geo)
        y.square().mean().backward()
        return [y, *(leaf.grad for leaf in leaves)]

    for half, single in zip(
        gradients(lambda t: t.half()), gradients(lambda t: t.clone()), strict=True
    ):
        error = (half.float() - single).abs().max().item() / single.abs().max().item()
        print(half.dtype, error < 2e-3)
    # -> tinytorch.float16 True
    # -> tinytorch.float16 True
    # -> tinytorch.float16 True
    # -> tinytorch.float16 True
    halves = [t.half().array for t in inputs]
    plain, through = (
        min(timeit.repeat(call, number=1, repeat=5))
        for call in (
            lambda: convolve(*halves, geo),
            lambda: in_float32(convolve, *halves, geo=geo),
        )
    )
    print(f"through float32: {through / plain:.2f} of the time, {through < plain}")
    # -> through float32: 0... of the time, True
