"""Step grid05: Checks of grid_sample, and the default of align_corners

A grid of (x, y, z) for a flat image, or eight places for an image of another batch: so far some of
that ends in an error of gather or reshape, and some in a picture that was not meant. Both functions
compare what they get with each other first, and name the sizes.

The trap is a default. Until version 1.3 PyTorch aligned the corners. A network that was trained
with it gives slightly different results without, and no error says why. So both functions warn
where nothing is chosen; stacklevel=3 makes the warning point to the line that called them.

Changed: grid_sample, affine_grid. New: MODES, PADDING_MODES, check_images, warn_of_default.
Try: a grid in float64 for an image in float32.
"""

import functools
import importlib
import itertools
import operator
import warnings

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.upsampling import cubic
from tinytorch.ops.comparison import where
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import arange, meshgrid, ones_like
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")


def read_at(input: Tensor, places: tuple[Tensor, ...]) -> Tensor:
    """The pixels of images [batch, channels, ...] at integer places [batch, n], one tensor for each
    dimension of the image. Returns [batch, channels, n], with zeros for places outside."""
    inside, index = True, 0
    for place, size in zip(places, input.shape[2:], strict=True):
        inside = (place >= 0) & (place < size) & inside
        index = index * size + place
    index = where(inside, index, 0).long().unsqueeze(1)
    found = input.flatten(2).gather(2, index.expand(-1, input.shape[1], -1))
    return where(inside.unsqueeze(1), found, 0)


def in_pixels(x: Tensor, size: int, align_corners: bool) -> Tensor:
    """-1 to 1 as places of pixels: from the center of the first pixel to that of the last
    (align_corners), or from outer edge to outer edge."""
    return (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2


def pulled_inside(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Places beyond the image, moved to its border or reflected there. Those of "zeros" stay."""
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        first, span = (0.0, size - 1) if align_corners else (-0.5, size)
        distance = (x - first).abs()
        times = (distance.detach() / max(span, 1)).floor()  # how often it crosses the image
        rest = distance - times * span
        x = where(times % 2 == 1, span - rest, rest) + first
    free = (x > 0) & (x < size - 1)  # a place that was moved to the border has no gradient
    return where(free, x, x.detach().clamp(0, size - 1))


def neighbours(x: Tensor, mode: str) -> list[tuple[Tensor, Tensor]]:
    """The pixels from which a mode reads a place, in one dimension: [(pixel, its weight), ...]."""
    if mode == "nearest":
        return [(x.detach().round(), where(x == x, 1.0, x))]  # x has a gradient: it is 0
    first = x.detach().floor()
    if mode == "bilinear":
        t = x - first
        return [(first, 1 - t), (first + 1, t)]
    return [(p, cubic(x - p, -0.75)) for p in (first - 1, first, first + 1, first + 2)]


def check_images(input: Tensor, grid: Tensor, mode: str) -> None:
    """Raises:
    RuntimeError: the images and the positions do not fit each other.
    """
    shape, dims = tuple(input.shape), input.ndim - 2
    if not 2 <= dims <= 3 or grid.ndim != dims + 2 or grid.shape[-1] != dims:
        raise RuntimeError(
            f"expected images [batch, channels, height, width] with a grid [batch, rows, columns, "
            f"2], or both with a depth, but got the sizes {shape} and {tuple(grid.shape)}"
        )
    if shape[0] != grid.shape[0]:
        raise RuntimeError(
            f"expected grid and input to have the same batch size, but got the sizes {shape} and "
            f"{tuple(grid.shape)}"
        )
    if 0 in shape[2:]:
        raise RuntimeError(f"expected images that are not empty, but got the sizes {shape}")
    if input.dtype != grid.dtype:
        raise RuntimeError(f"expected one type, but got {input.dtype} and {grid.dtype}")
    if mode == "bicubic" and dims != 2:
        raise RuntimeError("bicubic interpolation only supports 4-D input")


def warn_of_default(align_corners: bool | None) -> bool:
    """align_corners, and a warning where it was not given: the default was True once."""
    if align_corners is None:
        warnings.warn("the default of align_corners is False; give True or False", stacklevel=4)
    return bool(align_corners)


@checked
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Images read at the positions of a grid; differentiable in both.

    Args:
        input: [batch, channels, height, width], or with a depth before the height.
        grid: [batch, rows, columns, 2] (with a depth: [batch, planes, rows, columns, 3]), the x and
            y (and z) for each pixel of the result. -1 and 1 are the borders of the image.
        mode: "bilinear" (from 4 or 8 pixels), "nearest", or "bicubic" (from 16; without a depth).
        padding_mode: what is read beyond the borders: "zeros", the nearest pixel ("border"), or the
            image in a mirror ("reflection").
        align_corners: -1 and 1 are the centers of the corner pixels, not their outer edges.

    Returns [batch, channels, rows, columns].

    Raises:
        ValueError: no such mode or padding_mode.
        RuntimeError: the shapes or types do not fit.
    """
    if mode not in MODES:
        raise ValueError(f"expected mode to be one of {MODES}, but got: {mode!r}")
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"expected padding_mode of {PADDING_MODES}, but got: {padding_mode!r}")
    align_corners = warn_of_default(align_corners)
    check_images(input, grid, mode)
    dtype = input.dtype  # places of pixels need more than the 11 bits of a float16
    input, grid = (cast(x, opmath_type(dtype)) for x in (input, grid))
    positions, found = grid.flatten(1, -2), []
    for number, size in enumerate(reversed(input.shape[2:])):  # x is the image's last dimension
        x, border = in_pixels(positions[..., number], size, align_corners), (size, padding_mode)
        if mode != "bicubic":
            found.append(neighbours(pulled_inside(x, *border, align_corners), mode))
        else:
            pairs = neighbours(x, mode)
            found.append([(pulled_inside(p, *border, align_corners), w) for p, w in pairs])
    result = 0
    for corner in itertools.product(*reversed(found)):
        places, weights = zip(*corner, strict=True)
        weight = functools.reduce(operator.mul, weights)
        pixels = read_at(input, places)
        result = result + pixels * weight.unsqueeze(1)
    return cast(result, dtype).reshape(*input.shape[:2], *grid.shape[1:-1])


@checked
def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool | None = None) -> Tensor:
    """The positions from which grid_sample reads an image that is turned, moved or stretched.

    Args:
        theta: [batch, 2, 3], a matrix from (x, y, 1) in the result to (x, y) in the image; with a
            depth [batch, 3, 4].
        size: of the result: (batch, channels, height, width), or with a depth.
        align_corners: as for grid_sample.

    Returns [batch, height, width, 2], or [batch, depth, height, width, 3].

    Raises:
        ValueError: theta or size is not like that.
        NotImplementedError: size has another number of dimensions.
    """
    align_corners, dims = warn_of_default(align_corners), len(size) - 2
    if not theta.is_floating_point():
        raise ValueError(f"expected theta to have a floating point type, but got {theta.dtype}")
    if dims not in (2, 3):
        raise NotImplementedError(f"affine_grid supports 4-D and 5-D sizes, got {tuple(size)}")
    if theta.shape[1:] != (dims, dims + 1):
        raise ValueError(
            f"expected matrices [batch, {dims}, {dims + 1}] for the size {tuple(size)}, got "
            f"{tuple(theta.shape)}"
        )
    if min(size) <= 0:
        raise ValueError(f"expected a positive size of the result, got {tuple(size)}")
    axes = []
    for n in size[2:]:
        centers = (arange(n, dtype=theta.dtype, device=theta.device) * 2 - (n - 1)) / n
        axes.append(centers * (n / (n - 1)) if align_corners and n > 1 else centers)
    base = list(reversed(meshgrid(*axes, indexing="ij")))
    base = stack([*base, ones_like(base[0])], -1).flatten(0, -2)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


if __name__ == "__main__":

    def refused(function, *args, **options):
        try:
            function(*args, **options)
        except (ValueError, RuntimeError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {str(error)[:66]}")

    flat, deep = tensor(np.ones((2, 1, 3, 3))), tensor(np.ones((2, 1, 3, 3, 3)))
    places, deep_places = tensor(np.zeros((2, 1, 1, 2))), tensor(np.zeros((2, 1, 1, 1, 3)))
    for args in (
        (flat, places, "cubic"),
        (flat, places, "nearest", "mirror"),
        (flat, deep_places, "nearest", "zeros", True),
        (flat, places[:1], "nearest", "zeros", True),
        (flat[:, :, :0], places, "nearest", "zeros", True),
        (flat, places.float(), "nearest", "zeros", True),
        (deep, deep_places, "bicubic", "zeros", True),
    ):
        refused(grid_sample, *args)
    # -> ValueError: expected mode to be one of ('bilinear', 'nearest', 'bicubic'), but
    # -> ValueError: expected padding_mode of ('zeros', 'border', 'reflection'), but go
    # -> RuntimeError: expected images [batch, channels, height, width] with a grid [batc
    # -> RuntimeError: expected grid and input to have the same batch size, but got the s
    # -> RuntimeError: expected images that are not empty, but got the sizes (2, 1, 0, 3)
    # -> RuntimeError: expected one type, but got tinytorch.float64 and tinytorch.float32
    # -> RuntimeError: bicubic interpolation only supports 4-D input

    eye = tensor(np.eye(2, 3)[None])
    for theta, size in (
        (eye.long(), (1, 1, 2, 2)),
        (eye, (1, 1, 2)),
        (eye, (1, 1, 2, 2, 2)),
        (eye, (1, 1, 2, 0)),
    ):
        refused(affine_grid, theta, size, align_corners=True)
    # -> ValueError: expected theta to have a floating point type, but got tinytorch.in
    # -> NotImplementedError: affine_grid supports 4-D and 5-D sizes, got (1, 1, 2)
    # -> ValueError: expected matrices [batch, 3, 4] for the size (1, 1, 2, 2, 2), got
    # -> ValueError: expected a positive size of the result, got (1, 1, 2, 0)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grid_sample(flat, affine_grid(eye.expand(2, 2, 3), flat.shape))
    print(len(caught), caught[0].message)
    # -> 2 the default of align_corners is False; give True or False
