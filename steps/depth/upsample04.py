"""Step upsample04: Bilinear interpolation, by two small matrices

Squares are visible. Between two pixels with the values 0 and 1 a smooth image has 0.25 and 0.75. A
new pixel has its center between two old ones, and the nearer one counts more:

    weight of an old pixel = 1 - distance,  if that is positive        a tent with its top at 0

Between four pixels of an image it is the product of the weight along the rows and that along the
columns. So the new image is a sum over rows and a sum over columns: A x B^T, with a matrix for each
dimension, as in step pool10. linear, bilinear and trilinear are one formula, the gradient is there,
and BLAS does the work.

Where is the center of new pixel i? There are two answers, and they give different pictures.

    pixels are squares    new center i + 0.5 in new pixels; times the scale, less 0.5, in old ones
    pixels are points     align_corners=True: the first and the last point stay where they are

The first is the default; the second depends on the size of the picture. In the first, the outermost
centers lie beyond the old ones: there the border pixel counts as if it went on.

Changed: interpolate has a mode. New: tent, resize_matrix, CURVES.
Try: an inf in one pixel of the image. Which new ones does it spoil, and which should it?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.pooling import SpreadWindows, apply_matrices, pooling_windows
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.creation import allocated
from tinytorch.ops.indexing import Index


def tent(x: np.ndarray) -> np.ndarray:
    """1 at 0, falling linearly to 0 at -1 and 1: the weight of a pixel at this distance."""
    return np.maximum(0, 1 - abs(x))


# mode: the dimensions of the image
CURVES = {"linear": 1, "bilinear": 2, "trilinear": 3}


def resize_matrix(n: int, out: int, scale: float, align_corners: bool) -> np.ndarray:
    """The weight of each of n old pixels in each of `out` new ones, in one dimension: [out, n].

    The centers of the first and last pixels are kept (align_corners), or else their outer edges: a
    pixel is 1 wide, and its center is at 0.5.
    """
    centers = np.arange(out)[:, None]
    if align_corners:
        centers = centers * ((n - 1) / max(out - 1, 1))
    else:
        centers = (centers + 0.5) * scale - 0.5
    weights = tent(np.arange(-1, n + 1) - centers)
    inner = weights[:, 1:-1]
    inner[:, 0] += weights[:, 0]  # beyond its border the image goes on unchanged
    inner[:, -1] += weights[:, -1]
    return inner


def nearest(input: Tensor, sizes: tuple, scales: list[float]) -> Tensor:
    """Each new pixel takes the old one below it: the pixel at i * scale."""
    plane = input.array.shape[2:]
    factors = tuple(out // n for n, out in zip(plane, sizes, strict=True))
    if all(r * scale == 1 for r, scale in zip(factors, scales, strict=True)):
        # Each pixel is repeated: spread over a window of its own.
        ones = (1,) * len(sizes)
        windows, _ = pooling_windows(sizes, False, factors, factors, (0,) * len(sizes), ones)
        return SpreadWindows.apply(input, (*input.array.shape[:2], *sizes), windows)
    for dim, (n, out, scale) in enumerate(zip(plane, sizes, scales, strict=True), 2):
        # float32, as PyTorch: where the product is almost an integer, rounding decides.
        places = (np.arange(out, dtype=np.float32) * np.float32(scale)).astype(np.int64)
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
) -> Tensor:
    """Images [batch, channels, ...] enlarged or reduced to `size`, or by `scale_factor`.

    Args:
        mode: "nearest", "linear", "bilinear" or "trilinear".
        align_corners: keep the centers of the corner pixels, not their outer edges.
        recompute_scale_factor: compute the scale from the sizes, not from `scale_factor`.

    Raises:
        ValueError: the arguments do not fit each other.
        RuntimeError: there is nothing to enlarge, or nothing is left.
        NotImplementedError: the mode is unknown, or is not for images of so many dimensions.
    """
    ndim, plane = input.array.ndim - 2, input.array.shape[2:]
    if {"nearest": ndim, **CURVES}.get(mode) != ndim or not 1 <= ndim <= 3:
        raise NotImplementedError(f"no mode {mode!r} for {ndim + 2}-D input")
    given = size if scale_factor is None else scale_factor
    given = (given,) * ndim if isinstance(given, (int, float)) else tuple(given or ())
    both = size is not None and (scale_factor is not None or recompute_scale_factor)
    if both or len(given) != ndim:
        raise ValueError("give either size or scale_factor: a number, or one for each dimension")
    if mode not in CURVES and align_corners is not None:
        raise ValueError(f"align_corners cannot be set in the mode {mode!r}")
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
    if mode not in CURVES:
        return nearest(input, sizes, scales)
    matrices = [
        resize_matrix(*each, bool(align_corners)) for each in zip(plane, sizes, scales, strict=True)
    ]
    return apply_matrices(input, matrices)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    print(resize_matrix(2, 4, 0.5, False).tolist())
    # -> [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    print(resize_matrix(2, 4, 0.5, True).round(2).tolist())
    # -> [[1.0, 0.0], [0.67, 0.33], [0.33, 0.67], [0.0, 1.0]]
    image = tensor([[[[0.0, 4.0], [8.0, 12.0]]]])
    for line in interpolate(image, scale_factor=2, mode="bilinear").tolist()[0][0]:
        print(line)
    # -> [0.0, 1.0, 3.0, 4.0]
    # -> [2.0, 3.0, 5.0, 6.0]
    # -> [6.0, 7.0, 9.0, 10.0]
    # -> [8.0, 9.0, 11.0, 12.0]
    print("nearest:", interpolate(image, scale_factor=2).tolist()[0][0][0])
    # -> nearest: [0.0, 0.0, 4.0, 4.0]
    corners = interpolate(image, 4, mode="bilinear", align_corners=True)
    print("aligned:", corners.array[0, 0, 0].astype(float).round(2).tolist())
    # -> aligned: [0.0, 1.33, 2.67, 4.0]
    row = tensor([[[0.0, 6.0]]])
    for recompute in (False, True):
        options = {"mode": "linear", "recompute_scale_factor": recompute}
        print(interpolate(row, scale_factor=2.4, **options).array.round(2).tolist())
    # -> [[[0.0, 0.75, 3.25, 5.75]]]
    # -> [[[0.0, 1.5, 4.5, 6.0]]]
    wrong = [
        (image, {"mode": "linear"}),
        (image, {"align_corners": True}),
        (image, {"recompute_scale_factor": True}),
    ]
    for x, options in wrong:
        try:
            interpolate(x, 4, **options)
        except (ValueError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> NotImplementedError: no mode 'linear' for 4-D input
    # -> ValueError: align_corners cannot be set in the mode 'nearest'
    # -> ValueError: give either size or scale_factor: a number, or one for each dimension
    x = tensor(np.random.default_rng(0).normal(size=(1, 1, 2, 3, 2)), requires_grad=True)
    function = functools.partial(interpolate, size=(3, 2, 4), mode="trilinear")
    print("derivatives:", gradcheck(function, x) and gradgradcheck(function, x))
    # -> derivatives: True
