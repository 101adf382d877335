"""Step conv02: The gradients of a convolution

The convolution of step conv01 works on arrays, and nothing learns from it yet. From

    y[n, o, p] = sum over c, k of w[o, c, k] x[n, c, p + k]

you can read off both derivatives. w[o, c, k] is multiplied by x[n, c, p + k] in every y[n, o, p]:

    dL/dw[o, c, k]     = sum over n, p of g[n, o, p] x[n, c, p + k]       conv_weight(x, g)

and x[n, c, p + k] is part of several y[n, o, p], each of which sends back g times its weight:

    dL/dx[n, c, q] = sum over o, and p + k = q, of w[o, c, k] g[n, o, p]            conv_input(g, w)

conv_weight is a product with the windows again, this time from the right: [O, positions] times
[positions, C * kernel]. In conv_input the product W^T G is what each position adds to its window.
Windows overlap, so the parts are added one element k of the kernel at a time, each to a view of gx
that begins at k.

The trap: `gx[key] += part` would, after the addition, assign the view gx[key] to itself, which
takes as long again. `total = gx[key]; total += part` does not assign it.

`saves = 0, 1` declares that arguments 0 and 1 are kept, if they are (step node02).

All of this works on arrays, so a gradient has no history, and a second derivative is refused.

New: convolve_weight, convolve_input, Convolution.
Try: add all parts at the place of k = 0, with map(slice, geo.out). What does gradcheck say?
"""

import importlib
import math
from operator import add
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor
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


class Convolution(Function):
    """y = conv(x, w);   dL/dx = conv_input(g, w),   dL/dw = conv_weight(x, g)."""

    saves = 0, 1

    def forward(ctx, x: Any, w: Any, geo: Geometry) -> Any:
        need_x, need_w, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if need_w else None, w if need_x else None)
        ctx.geo = geo
        return convolve(x, w, geo)

    def backward(ctx, g: Any) -> Any:
        if ctx.xp is Tensor:
            raise NotImplementedError("Convolution cannot be differentiated twice")
        (x, w), (need_x, need_w, _) = ctx.saved, ctx.needs_input_grad
        return (
            convolve_input(g, w, ctx.geo) if need_x else None,
            convolve_weight(x, g, ctx.geo) if need_w else None,
        )


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    # A signal of four ones is in two windows of three. The two in the middle are in both.
    geo = Geometry((1, 1, 4), (1, 1, 3))
    x, w = tensor([[[1.0, 1, 1, 1]]], requires_grad=True), tensor([[[1.0, 2, 3]]])
    y = Convolution.apply(x, w, geo)
    print(y.tolist(), y.grad_fn.name())  # -> [[[6.0, 6.0]]] ConvolutionBackward0
    y.sum().backward()
    print(x.grad.tolist())  # -> [[[1.0, 3.0, 5.0, 3.0]]]

    manual_seed(0)
    x = randn(2, 2, 5, 4, dtype=float64, requires_grad=True)
    w = randn(3, 2, 3, 2, dtype=float64, requires_grad=True)
    geo = Geometry((2, 2, 5, 4), (3, 2, 3, 2))
    print(gradcheck(lambda x, w: Convolution.apply(x, w, geo), (x, w)))  # -> True
    try:
        Convolution.apply(x, w, geo).sum().backward(create_graph=True)
    except NotImplementedError as error:
        print(error)  # -> Convolution cannot be differentiated twice

    # A kernel is found by gradient descent, from a picture and what the kernel made of it.
    wanted = tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]])
    picture = randn(1, 1, 12, 12)
    geo = Geometry((1, 1, 12, 12), (1, 1, 3, 3))
    goal = Convolution.apply(picture, wanted, geo)
    kernel = tensor(np.zeros((1, 1, 3, 3), np.float32), requires_grad=True)
    for _ in range(200):
        loss = ((Convolution.apply(picture, kernel, geo) - goal) ** 2).mean()
        kernel.grad = None
        loss.backward()
        kernel = (kernel - 0.1 * kernel.grad).detach().requires_grad_()
    print(abs(kernel.detach().numpy() - wanted.numpy()).max() < 1e-3)  # -> True
