"""Step grid04: Bicubic sampling, and places in float16

interpolate has a smoother curve than the tent, with four pixels in each dimension (step
upsample05). grid_sample can read with it, too: mode "bicubic". `cubic` of that step gives the
weight of a pixel by its distance, for tensors as for arrays, so the gradient is there as well.

These pixels may lie beyond the image even where the place does not. So each of them is moved back
inside, and not the place.

In float16 the place of a pixel is a problem. Between 1,024 and 2,048 that type has no digits after
the point, so a place between two pixels is rounded to one of them. Places are computed in float32.

The trap: bicubic weights can be negative, so the result may be darker than the darkest pixel, and
brighter than the brightest.

Changed: neighbours, grid_sample.
Try: read at 0.5 beside a black and a white pixel, with all three modes.
"""

import functools
import importlib
import itertools
import operator

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


@checked
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
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
    """
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
def affine_grid(theta: Tensor, size: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """The positions from which grid_sample reads an image that is turned, moved or stretched.

    Args:
        theta: [batch, 2, 3], a matrix from (x, y, 1) in the result to (x, y) in the image; with a
            depth [batch, 3, 4].
        size: of the result: (batch, channels, height, width), or with a depth.
        align_corners: as for grid_sample.

    Returns [batch, height, width, 2], or [batch, depth, height, width, 3].
    """
    dims, axes = len(size) - 2, []
    for n in size[2:]:
        centers = (arange(n, dtype=theta.dtype, device=theta.device) * 2 - (n - 1)) / n
        axes.append(centers * (n / (n - 1)) if align_corners and n > 1 else centers)
    base = list(reversed(meshgrid(*axes, indexing="ij")))
    base = stack([*base, ones_like(base[0])], -1).flatten(0, -2)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck

    rng = np.random.default_rng(0)
    image = tensor(rng.normal(size=(1, 1, 3, 3)), requires_grad=True)
    grid = tensor(rng.uniform(-1.2, 1.2, (1, 2, 2, 2)), requires_grad=True)
    weights = [weight.item() for _, weight in neighbours(tensor([2.5]), "bicubic")]
    print(weights, sum(weights))  # -> [-0.09375, 0.59375, 0.59375, -0.09375] 1.0
    for padding_mode in ("zeros", "border", "reflection"):
        function = functools.partial(grid_sample, mode="bicubic", padding_mode=padding_mode)
        print(padding_mode, gradcheck(function, (image, grid)))
    # -> zeros True
    # -> border True
    # -> reflection True

    wide = tensor(np.arange(2000.0)[None, None, None] % 2, dtype="float16")  # 0, 1, 0, 1, ...
    place = tensor([[[[0.25, 0.0]]]], dtype="float16")
    print(in_pixels(place[..., 0], 2000, False).item())  # -> 1250.0
    print(in_pixels(place[..., 0].float(), 2000, False).item())  # -> 1249.5
    print(grid_sample(wide, place).item())  # -> 0.5
