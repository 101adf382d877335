"""Unfold copies the windows of pictures into columns; Fold adds columns up where they came from."""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.conv import per_dimension
from tinytorch.nn.modules.module import Module
from tinytorch.ops.convolution import Geometry, geometry


class Im2Col(Function):
    """columns[n, c, k, p] = x[n, c, p * stride + k * dilation - padding]; zeros at the border."""

    def forward(ctx, x: Any, geo: Geometry) -> Any:
        ctx.geo = geo
        n, rows = len(geo.kernel), math.prod(geo.w_shape[1:])
        windows = geo.windows(geo.pad(x), n, geo.out)
        return windows.reshape(x.shape[0], rows, math.prod(geo.out))

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Col2Im, g, ctx.geo)


class Col2Im(Function):
    """The gradient of Im2Col: an element of x is in several windows, whose numbers add up."""

    def forward(ctx, columns: Any, geo: Geometry) -> Any:
        ctx.geo = geo
        x = ctx.xp.zeros(geo.padded, columns.dtype)
        columns = columns.reshape(*x.shape[:2], *geo.kernel, *geo.out)
        for k in np.ndindex(*geo.kernel):
            sizes = zip(k, geo.dilation, geo.stride, geo.out, strict=True)
            part = x[(..., *(slice(a * d, a * d + (n - 1) * s + 1, s) for a, d, s, n in sizes))]
            part += columns[(slice(None), slice(None), *k)]
        return ctx.xp.ascontiguousarray(x[geo.inside])

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Im2Col, g, ctx.geo)


def fold_geometry(
    shape: tuple, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Geometry:
    """The windows of pictures of `shape` [N, C, height, width].

    Raises:
        RuntimeError: a number is out of range, or no window fits.
    """
    kernel = per_dimension("kernel_size", kernel_size, 2, 1)
    pads = tuple((p, p) for p in per_dimension("padding", padding, 2))
    stride, dilation = (
        per_dimension("stride", stride, 2, 1),
        per_dimension("dilation", dilation, 2, 1),
    )
    geo = geometry(shape, (1, shape[1], *kernel), stride, pads, dilation, 1)
    if min(shape[1:] + geo.out) < 1:
        raise RuntimeError(f"the windows of {kernel} do not fit a picture of {shape[2:]}")
    return geo


@checked
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """All windows as columns: [N, C, height, width] -> [N, C * kernel, windows].

    Raises:
        RuntimeError: the input is not of this form (or without N), or no window fits.
    """
    if input.array.ndim not in (3, 4):
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor, but got {input.shape}")
    if input.array.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    shape = input.array.shape
    return Im2Col.apply(input, fold_geometry(shape, kernel_size, dilation, padding, stride))


@checked
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Adds columns up to pictures: [N, C * kernel, windows] -> [N, C, *output_size].

    Raises:
        RuntimeError: the input is not of this form (or without N), or its sizes do not fit.
    """
    if input.array.ndim not in (2, 3):
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor, but got {input.shape}")
    if input.array.ndim == 2:
        options = output_size, kernel_size, dilation, padding, stride
        return fold(input.unsqueeze(0), *options).squeeze(0)
    n, rows, windows = input.array.shape
    kernel = per_dimension("kernel_size", kernel_size, 2, 1)
    shape = (n, rows // math.prod(kernel), *per_dimension("output_size", output_size, 2, 1))
    geo = fold_geometry(shape, kernel, dilation, padding, stride)
    if (rows, windows) != (math.prod(geo.w_shape), math.prod(geo.out)):
        raise RuntimeError(
            f"fold() to {shape[2:]} with {kernel} expected {math.prod(geo.out)} columns of a "
            f"multiple of {math.prod(kernel)} rows, but got {[rows, windows]}"
        )
    return Col2Im.apply(input, geo)


class Unfold(Module):
    """unfold() as a layer."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        names = ("output_size", "kernel_size", "dilation", "padding", "stride")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names if hasattr(self, name))


class Fold(Unfold):
    """fold() as a layer."""

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ):
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        options = self.kernel_size, self.dilation, self.padding, self.stride
        return fold(input, self.output_size, *options)
