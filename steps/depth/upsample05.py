"""Step upsample05: Bicubic, antialiased and area interpolation

The tent of step upsample04 has a kink at its top, and an enlarged image has kinks where its pixels
were. A smoother curve uses four pixels in each dimension, with weights from two cubics that meet
without a kink (Keys, 1981). It is negative between 1 and 2, which sharpens. The matrix is made as
before from another curve: that is all that bicubic is.

A smaller image has the opposite problem. New pixels are far apart. The few old ones next to each of
them say little about the many between, and fine stripes become coarse ones: aliasing.
antialias=True makes the curve as wide as a new pixel, so that all of the old ones count, and
divides by the sum of the weights. (PyTorch has two constants for the cubic, -0.75, and -0.5 with
antialias.)

"area" takes the mean of all old pixels that a new one covers: adaptive pooling, step pool10.

"nearest-exact" takes the pixel below the center of the new one, (i + 0.5) * scale; "nearest" takes
that below its left edge, which shifts the picture by half a pixel.

Changed: CURVES is a table of curves; tent, resize_matrix, nearest, interpolate. New: cubic.
Try: a curve that is 1 from -0.5 to 0.5 and else 0. Which of the modes is it?
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.pooling import (
    SpreadWindows,
    adaptive_avg_pool,
    apply_matrices,
    pooling_windows,
)
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import allocated
from tinytorch.ops.indexing import Index


def tent(x: np.ndarray, a: float) -> np.ndarray:
    """1 at 0, falling linearly to 0 at -1 and 1: the weight of a pixel at this distance."""
    return np.maximum(0, 1 - abs(x))


def cubic(x: Any, a: float) -> Any:
    """A smooth curve of two cubics, 1 at 0, 0 at the other integers and beyond 2 (Keys, 1981)."""
    x = abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    return near * (x <= 1) + far * ((x > 1) & (x < 2))


# mode: (dimensions of the image; the weight of a pixel by its distance)
CURVES: dict[str, tuple[int, Callable]] = {
    "linear": (1, tent),
    "bilinear": (2, tent),
    "trilinear": (3, tent),
    "bicubic": (2, cubic),
}


def resize_matrix(
    n: int, out: int, scale: float, curve: Callable, align_corners: bool, antialias: bool
) -> np.ndarray:
    """The weight of each of n old pixels in each of `out` new ones, in one dimension: [out, n].

    The centers of the first and last pixels are kept (align_corners), or else their outer edges: a
    pixel is 1 wide, and its center is at 0.5.
    """
    centers = np.arange(out)[:, None]
    if align_corners:
        centers = centers * ((n - 1) / max(out - 1, 1))
    else:
        centers = (centers + 0.5) * scale - 0.5
    if antialias:  # a smaller image averages all the old pixels that a new one covers
        weights = curve((np.arange(n) - centers) / max(scale, 1), -0.5)
        return weights / weights.sum(axis=1, keepdims=True)
    weights = curve(np.arange(-2, n + 2) - centers, -0.75)
    inner = weights[:, 2:-2]
    inner[:, 0] += weights[:, :2].sum(axis=1)  # beyond its border the image goes on unchanged
    inner[:, -1] += weights[:, -2:].sum(axis=1)
    return inner


def nearest(input: Tensor, sizes: tuple, scales: list[float], shift: float) -> Tensor:
    """Each new pixel takes the old one below it: the pixel at (i + shift) * scale."""
    plane = input.array.shape[2:]
    factors = tuple(out // n for n, out in zip(plane, sizes, strict=True))
    if all(r * scale == 1 for r, scale in zip(factors, scales, strict=True)):
        # Each pixel is repeated: spread over a window of its own.
        ones = (1,) * len(sizes)
        windows, _ = pooling_windows(sizes, False, factors, factors, (0,) * len(sizes), ones)
        return SpreadWindows.apply(input, (*input.array.shape[:2], *sizes), windows)
    for dim, (n, out, scale) in enumerate(zip(plane, sizes, scales, strict=True), 2):
        # float32, as PyTorch: where the product is almost an integer, rounding decides.
        places = ((np.arange(out, dtype=np.float32) + shift) * np.float32(scale)).astype(np.int64)
        places = input.device.xp.asarray(np.minimum(places, n - 1).tolist())
        input = Index.apply(input, (dim,), places)
    return input


@checked
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images [batch, channels, ...] enlarged or reduced to `size`, or by `scale_factor`.

    Args:
        mode: "nearest", "nearest-exact" (which rounds as other libraries do), "linear", "bilinear",
            "trilinear", "bicubic", or "area" (adaptive average pooling).
        align_corners: keep the centers of the corner pixels, not their outer edges.
        recompute_scale_factor: compute the scale from the sizes, not from `scale_factor`.
        antialias: a smaller image is an average; for bilinear and bicubic.

    Raises:
        ValueError: the arguments do not fit each other.
        RuntimeError: there is nothing to enlarge, or nothing is left.
        NotImplementedError: the mode is unknown, or is not for images of so many dimensions.
    """
    ndim, plane = input.array.ndim - 2, input.array.shape[2:]
    modes = {"nearest": ndim, "nearest-exact": ndim, "area": ndim}
    modes.update((name, curve[0]) for name, curve in CURVES.items())
    if modes.get(mode) != ndim or not 1 <= ndim <= 3:
        raise NotImplementedError(f"no mode {mode!r} for {ndim + 2}-D input")
    given = size if scale_factor is None else scale_factor
    if not isinstance(given, (tuple, list)):
        given = () if given is None else (given,) * ndim
    given = as_shape((given,)) if scale_factor is None else tuple(map(float, given))
    both = size is not None and (scale_factor is not None or recompute_scale_factor)
    if both or len(given) != ndim:
        raise ValueError("give either size or scale_factor: a number, or one for each dimension")
    if mode not in CURVES and align_corners is not None:
        raise ValueError(f"align_corners cannot be set in the mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("antialias is for the modes bilinear and bicubic")
    sizes = given
    if size is None:
        sizes = tuple(math.floor(n * factor) for n, factor in zip(plane, given, strict=True))
    if 0 in input.array.shape[1:] or min(sizes) < 1:
        raise RuntimeError(f"Input and output sizes should be greater than 0: {plane}, {sizes}")
    # Refused before the loops over sizes if there is not as much memory.
    allocated(input.device.xp.empty, (*input.array.shape[:2], *sizes), input.array.dtype)
    scales = [n / out for n, out in zip(plane, sizes, strict=True)]
    if size is None and not recompute_scale_factor:
        scales = [1 / factor for factor in given]
    if mode == "area":
        return adaptive_avg_pool(ndim, input, sizes)
    if mode not in CURVES:
        return nearest(input, sizes, scales, 0.5 if mode == "nearest-exact" else 0.0)
    options = CURVES[mode][1], bool(align_corners), antialias
    matrices = [resize_matrix(*each, *options) for each in zip(plane, sizes, scales, strict=True)]
    return apply_matrices(input, matrices)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    print("tent: ", tent(np.arange(0, 2.5, 0.5), 0).tolist())  # -> tent:  [1.0, 0.5, 0.0, 0.0, 0.0]
    print("cubic:", cubic(np.arange(0, 2.5, 0.5), -0.75).tolist())
    # -> cubic: [1.0, 0.59375, 0.0, -0.09375, 0.0]
    step = np.zeros((1, 1, 6, 6))
    step[..., 3:] = 1.0
    for mode in ("nearest", "bilinear", "bicubic"):
        row = interpolate(tensor(step), 12, mode=mode).array[0, 0, 0]
        print(f"{mode:8}:", row[3:9].round(2).tolist())
    # -> nearest : [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    # -> bilinear: [0.0, 0.0, 0.25, 0.75, 1.0, 1.0]
    # -> bicubic : [-0.04, -0.11, 0.23, 0.77, 1.11, 1.04]
    # Stripes of one pixel, made smaller: their mean is 0.5 everywhere.
    stripes = tensor(np.tile([0.0, 1.0], (1, 1, 12, 6)))
    for options in (
        {"mode": "bilinear"},
        {"mode": "bilinear", "antialias": True},
        {"mode": "area"},
    ):
        small = interpolate(stripes, 4, **options).array[0, 0, 0]
        print(small.round(2).tolist())
    # -> [1.0, 0.0, 1.0, 0.0]
    # -> [0.5, 0.44, 0.56, 0.5]
    # -> [0.33, 0.67, 0.33, 0.67]
    row = tensor([[[1.0, 2.0, 3.0, 4.0]]])
    for mode in ("nearest", "nearest-exact"):
        print(mode, interpolate(row, 2, mode=mode).tolist())
    # -> nearest [[[1.0, 3.0]]]
    # -> nearest-exact [[[2.0, 4.0]]]
    try:
        interpolate(row, 2, antialias=True)
    except ValueError as error:
        print(error)  # -> antialias is for the modes bilinear and bicubic
    x = tensor(np.random.default_rng(0).normal(size=(1, 1, 4, 3)), requires_grad=True)
    function = functools.partial(interpolate, size=(3, 5), mode="bicubic")
    print("derivatives:", gradcheck(function, x) and gradgradcheck(function, x))
    # -> derivatives: True
