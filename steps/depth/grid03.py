"""Step grid03: affine_grid, or six numbers that turn an image

grid_sample wants a place for each pixel. To turn an image is one rule for all of them:

    x_image = a x + b y + c             theta = [[a, b, c],
    y_image = d x + e y + f                      [d, e, f]]

An affine map turns, stretches, shears and moves. The grid is one product: the places of the
result's pixels, each with a 1 behind for c and f, times theta. A network that gives six numbers for
an image can put it straight before it looks at it (a spatial transformer, Jaderberg et al., 2015),
and learns them from the loss like its other numbers.

The centers of n pixels between -1 and 1 are (2 i + 1 - n) / n; with align_corners the first and the
last are at -1 and 1.

The trap: theta maps the result to the image, not the image to the result. With a = 2 the result
shows twice as much of the image, so everything in it is half as large.

PyTorch's word for it is affine_grid.
New: affine_grid.
Try: theta = [[0.5, 0, 0.5], [0, 0.5, 0.5]]. Which part of the image is shown?
"""

import functools
import importlib
import itertools
import operator

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import arange, meshgrid, ones_like
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
    t = x - first
    return [(first, 1 - t), (first + 1, t)]


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
        mode: "bilinear" (from 4 or 8 pixels) or "nearest".
        padding_mode: what is read beyond the borders: "zeros", the nearest pixel ("border"), or the
            image in a mirror ("reflection").
        align_corners: -1 and 1 are the centers of the corner pixels, not their outer edges.

    Returns [batch, channels, rows, columns].
    """
    positions, found = grid.flatten(1, -2), []
    for number, size in enumerate(reversed(input.shape[2:])):  # x is the image's last dimension
        x = in_pixels(positions[..., number], size, align_corners)
        found.append(neighbours(pulled_inside(x, size, padding_mode, align_corners), mode))
    result = 0
    for corner in itertools.product(*reversed(found)):
        places, weights = zip(*corner, strict=True)
        weight = functools.reduce(operator.mul, weights)
        pixels = read_at(input, places)
        result = result + pixels * weight.unsqueeze(1)
    return result.reshape(*input.shape[:2], *grid.shape[1:-1])


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
    image = tensor([[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]]])

    def mapped(*theta, align_corners=False, out=3):
        theta = tensor([theta]).reshape(1, 2, 3)
        grid = affine_grid(theta, (1, 1, out, out), align_corners)
        result = grid_sample(image, grid, align_corners=align_corners)
        return [[round(x, 2) + 0.0 for x in line] for line in result.tolist()[0][0]]

    print("as it is:", mapped(1.0, 0.0, 0.0, 0.0, 1.0, 0.0))
    # -> as it is: [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    print("turned:  ", mapped(0.0, 1.0, 0.0, -1.0, 0.0, 0.0))
    # -> turned:   [[6.0, 3.0, 0.0], [7.0, 4.0, 1.0], [8.0, 5.0, 2.0]]
    print("moved:   ", mapped(1.0, 0.0, 2 / 3, 0.0, 1.0, 0.0))
    # -> moved:    [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0], [7.0, 8.0, 0.0]]
    print("smaller: ", mapped(2.0, 0.0, 0.0, 0.0, 2.0, 0.0))
    # -> smaller:  [[0.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    print("corners: ", mapped(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, align_corners=True, out=2))
    # -> corners:  [[0.0, 2.0], [6.0, 8.0]]
    volume = affine_grid(tensor(np.eye(3, 4)[None]), (1, 1, 1, 2, 2))
    print(volume.shape, volume.flatten(0, -2).tolist()[0])
    # -> tinytorch.Size([1, 1, 2, 2, 3]) [-0.5, -0.5, 0.0]

    # How was an image turned? Six numbers learn it.
    rng = np.random.default_rng(0)
    smooth = np.add.outer(np.sin(np.arange(9) / 2), np.cos(np.arange(9) / 3)) ** 2
    image, angle = tensor(smooth[None, None]), 0.4
    right = [[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0]]
    target = grid_sample(image, affine_grid(tensor([right]), image.shape), "bilinear", "border")
    theta = tensor(np.eye(2, 3)[None], requires_grad=True)
    for _ in range(300):
        found = grid_sample(image, affine_grid(theta, image.shape), "bilinear", "border")
        ((found - target) ** 2).mean().backward()
        theta = (theta - 0.05 * theta.grad).detach().requires_grad_()
    print("found:", np.abs(theta.array - right).max() < 0.01)  # -> found: True
