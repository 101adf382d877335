"""Step conv08: The transposed convolution

A network that draws has to go the other way: from a few numbers to a small picture, and from that
to a larger one. A convolution with stride 2 halves a picture. We already have the operation that
doubles it. A convolution is linear, y = M x with a large matrix M, and its gradient is M^T g:
conv_input. It takes an array of the shape of y and returns one of the shape of x. As a layer it is
called a transposed convolution. Every pixel of its input adds a copy of the kernel, times its own
value, to the output:

    input   a  b         stride 2, kernel [1, 2, 1]        a  2a  a
                                                                  b  2b  b
                                                           a  2a a+b 2b  b

Often it is called "deconvolution", but it does not undo a convolution: M^T is not the inverse of M.

Its size is not unique: pictures of 7 and of 8 pixels have 3 windows (step conv06). So the caller
says which shape x should have, and `out` how many of the windows that would fit are used.

A network calls a layer with the same sizes again and again. A Geometry depends on the sizes alone,
so functools.lru_cache keeps those that were made.

The trap: if the kernel's size is not a multiple of the stride, some places receive more copies than
others. The picture then shows a checkerboard. A 4 x 4 kernel with stride 2 does not.

Changed: Geometry. New: geometry.
Try: stride 3 for `copies`, and 3 * 5 + k places. Where do they overlap now?
"""

import functools
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
        out: tuple | None = None,
    ):
        self.x_shape, self.w_shape, self.stride, self.dilation = x_shape, w_shape, stride, dilation
        self.groups, self.kernel = groups, w_shape[2:]
        sizes = zip(x_shape[2:], pads, strict=True)
        self.padded = (*x_shape[:2], *(before + n + after for n, (before, after) in sizes))
        sizes = zip(x_shape[2:], pads, strict=True)
        self.inside = (..., *(slice(before, before + n) for n, (before, _) in sizes))
        self.reach = tuple((k - 1) * d for k, d in zip(self.kernel, dilation, strict=True))
        sizes = zip(self.padded[2:], self.reach, stride, strict=True)
        self.out = out or tuple((n - reach - 1) // s + 1 for n, reach, s in sizes)
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


geometry = functools.lru_cache(maxsize=1024)(Geometry)


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
    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.random import manual_seed, randn

    line = geometry((1, 1, 5), (1, 1, 3), (2,), ((0, 0),), (1,), 1)
    print("kept:", geometry((1, 1, 5), (1, 1, 3), (2,), ((0, 0),), (1,), 1) is line)
    # -> kept: True
    w = np.array([[[1.0, 2.0, 1.0]]])
    print(convolve_input(np.array([[[1.0, 10.0]]]), w, None, line))  # -> [[[ 1.  2. 11. 20. 10.]]]

    # M, column by column, from unit vectors; conv_input multiplies by its transpose.
    M = np.stack([convolve(e.reshape(1, 1, 5), w, None, line).ravel() for e in np.eye(5)], axis=1)
    print(M.tolist())  # -> [[1.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0, 1.0]]
    print(M.T @ [1.0, 10.0], "not the inverse:", M @ M.T @ [1.0, 10.0])
    # -> [ 1.  2. 11. 20. 10.] not the inverse: [16. 61.]

    # From 2 values to 5, 6 or 7: with stride 2 the first two have the same number of windows.
    for size in (5, 6):
        longer = geometry((1, 1, size), (1, 1, 3), (2,), ((0, 0),), (1,), 1, (2,))
        print(size, longer.out, convolve_input(np.ones((1, 1, 2)), w, np.ones(1), longer)[0, 0])
    # -> 5 (2,) [2. 3. 3. 3. 2.]
    # -> 6 (2,) [2. 3. 3. 3. 2. 1.]

    # How many copies of a kernel reach each place?
    for k in (3, 4):
        copies = geometry((1, 1, 2 * 6 + k - 2), (1, 1, k), (2,), ((0, 0),), (1,), 1)
        print(
            "kernel", k, convolve_input(np.ones((1, 1, 6)), np.ones((1, 1, k)), None, copies)[0, 0]
        )
    # -> kernel 3 [1. 1. 2. 1. 2. 1. 2. 1. 2. 1. 2. 1. 1.]
    # -> kernel 4 [1. 1. 2. 2. 2. 2. 2. 2. 2. 2. 2. 2. 1. 1.]

    # A picture of 8 x 8 from 16 numbers, by gradient descent through two transposed convolutions.
    manual_seed(0)
    small = geometry((1, 4, 4, 4), (16, 4, 4, 4), (1, 1), ((0, 0),) * 2, (1, 1), 1)
    large = geometry((1, 1, 8, 8), (4, 1, 4, 4), (2, 2), ((1, 1),) * 2, (1, 1), 1)
    a = (randn(16, 4, 4, 4) * 0.2).requires_grad_()
    b = (randn(4, 1, 4, 4) * 0.2).requires_grad_()
    code = randn(1, 16, 1, 1)
    digit = load_digits()[0][0].reshape(1, 1, 8, 8)
    for _ in range(300):
        hidden = ConvolutionInput.apply(code, a, None, small)
        loss = ((ConvolutionInput.apply(hidden, b, None, large) - digit) ** 2).mean()
        loss.backward()
        with no_grad():
            for p in (a, b):
                p.sub_(p.grad, alpha=0.2)
                p.grad = None
    print(f"error of the picture: {loss.item():.6f}")  # -> error of the picture: 0.000166
