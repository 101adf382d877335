"""Step conv03: The derivatives of a convolution are convolutions

The gradients of step conv02 are computed with arrays, so they have no history, and backward with
create_graph=True is refused. Look at the three sums once more, in one notation:

    conv          y[n, o, p]      sum over c, k of  w[o, c, k] x[n, c, p + k]
    conv_weight   w[o, c, k]      sum over n, p of  y[n, o, p] x[n, c, p + k]
    conv_input    x[n, c, q]      sum over o, and p + k = q, of  w[o, c, k] y[n, o, p]

All three are the same sum of products of w, x and y, each time with one of the three left out. Each
is bilinear: linear in both of its arguments. So the derivatives of each of them are the other two,
and with a Function for each a convolution can be differentiated as often as one likes. (Here all
three nodes are called ConvolutionBackward0; PyTorch calls the two of the gradients
ConvolutionBackwardBackward0.)

    <y, conv(x, w)>  =  <w, conv_weight(x, y)>  =  <x, conv_input(y, w)>      the same sum

The trap: each argument is saved for the derivative by the *other* one. If w is frozen, x need not
be kept, and x is usually the larger.

Changed: Convolution. New: Bilinear, its base class, ConvolutionInput, ConvolutionWeight.
Try: return None in place of one gradient of ConvolutionWeight. Which check finds it?
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


def convolve(x: Any, w: Any, geo: Geometry) -> Any:
    """y[n, o, p] = sum of w[o, c, k] x[n, c, p + k]."""
    return (w.reshape(len(w), -1) @ geo.columns(x)).reshape(geo.y_shape)


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p + k]."""
    g = g.reshape(*g.shape[:2], -1)
    return (g @ geo.columns(x).swapaxes(1, 2)).sum(0).reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, geo: Geometry) -> Any:
    """gx[n, c, p + k] = sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    gx = xp.zeros(geo.x_shape, g.dtype)
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
    """y = conv(x, w);   dL/dx = conv_input(g, w),   dL/dw = conv_weight(x, g)."""

    def forward(ctx, x: Any, w: Any, geo: Geometry) -> Any:
        ctx.save(x, w, geo)
        return convolve(x, w, geo)

    def backward(ctx, g: Any) -> Any:
        (x, w), (need_x, need_w, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, w, ctx.geo) if need_x else None,
            ctx.call(ConvolutionWeight, x, g, ctx.geo) if need_w else None,
        )


class ConvolutionInput(Bilinear):
    """x = conv_input(g, w);   dL/dg = conv(u, w),   dL/dw = conv_weight(u, g)."""

    def forward(ctx, g: Any, w: Any, geo: Geometry) -> Any:
        ctx.save(g, w, geo)
        return convolve_input(g, w, geo)

    def backward(ctx, u: Any) -> Any:
        (g, w), (need_g, need_w, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(Convolution, u, w, ctx.geo) if need_g else None,
            ctx.call(ConvolutionWeight, u, g, ctx.geo) if need_w else None,
        )


class ConvolutionWeight(Bilinear):
    """w = conv_weight(x, g);   dL/dx = conv_input(g, v),   dL/dg = conv(x, v)."""

    def forward(ctx, x: Any, g: Any, geo: Geometry) -> Any:
        ctx.save(x, g, geo)
        return convolve_weight(x, g, geo)

    def backward(ctx, v: Any) -> Any:
        (x, g), (need_x, need_g, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, v, ctx.geo) if need_x else None,
            ctx.call(Convolution, x, v, ctx.geo) if need_g else None,
        )


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    x = randn(2, 2, 5, 4, dtype=float64, requires_grad=True)
    w = randn(3, 2, 3, 2, dtype=float64, requires_grad=True)
    geo = Geometry((2, 2, 5, 4), (3, 2, 3, 2))
    y = Convolution.apply(x, w, geo)
    print(y.shape, y.grad_fn.name())  # -> tinytorch.Size([2, 3, 3, 3]) ConvolutionBackward0

    def second(f, *inputs):
        return gradcheck(f, inputs), gradgradcheck(f, inputs)

    g = randn(*y.shape, dtype=float64, requires_grad=True)
    print("conv        ", second(lambda x, w: Convolution.apply(x, w, geo), x, w))
    # -> conv         (True, True)
    print("conv_input  ", second(lambda g, w: ConvolutionInput.apply(g, w, geo), g, w))
    # -> conv_input   (True, True)
    print("conv_weight ", second(lambda x, g: ConvolutionWeight.apply(x, g, geo), x, g))
    # -> conv_weight  (True, True)

    # <g, conv(x, w)> = <conv_input(g, w), x> = <conv_weight(x, g), w>: one sum in three orders.
    total = (g * y).sum().item()
    by_x = (ConvolutionInput.apply(g, w, geo) * x).sum().item()
    by_w = (ConvolutionWeight.apply(x, g, geo) * w).sum().item()
    print(f"{total:.6f} {by_x:.6f} {by_w:.6f}")  # -> -19.160386 -19.160386 -19.160386

    # With a frozen kernel the pictures are not kept.
    frozen = Convolution.apply(x, w.detach(), geo)
    print([each is not None for each in frozen.grad_fn.saved])  # -> [False, True]
