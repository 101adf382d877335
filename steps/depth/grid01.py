"""Step grid01: grid_sample: reading an image between its pixels

interpolate reads an image at places of a regular grid, so two small matrices do it (step
upsample04). Turn an image by 30 degrees, or let a network say where to look, and each pixel of the
result has a place of its own:

    grid[b, i, j] = (x, y)        result[b, :, i, j] = the image b, read at (x, y)

x and y go from -1 to 1, from one edge of the image to the other, whatever its size is. A place
falls between four pixels. As in step upsample04 the nearer ones count more, in each dimension:

    x = 1.3         pixel 1 with weight 0.7, pixel 2 with weight 0.3

and a corner has the product of its two weights. Outside of the image there are zeros.

Nothing here needs a formula for the gradient: it is made of gather (step indexing08) and products.
The image gets its gradient through the pixels; the grid gets one through the weights. So a network
can learn where to look. `first` is a whole number and has no gradient: detach says so.

The trap: the image is [rows, columns], and a place is (x, y). The last dimension comes first.

PyTorch's word for it is grid_sample.
New: read_at, in_pixels, neighbours, grid_sample.
Try: a grid that is moved by one pixel, 2 / 8 of a width of 8. Which pixels become zero?
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


def in_pixels(x: Tensor, size: int) -> Tensor:
    """-1 to 1 as places of pixels, from outer edge to outer edge."""
    return ((x + 1) * size - 1) / 2


def neighbours(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The pixels from which a place is read, in one dimension: [(pixel, its weight), ...]."""
    first = x.detach().floor()
    t = x - first
    return [(first, 1 - t), (first + 1, t)]


@checked
def grid_sample(input: Tensor, grid: Tensor) -> Tensor:
    """Images read at the positions of a grid; differentiable in both.

    Args:
        input: [batch, channels, height, width], or with a depth before the height.
        grid: [batch, rows, columns, 2] (with a depth: [batch, planes, rows, columns, 3]), the x and
            y (and z) for each pixel of the result. -1 and 1 are the borders of the image.

    Returns [batch, channels, rows, columns].
    """
    positions, found = grid.flatten(1, -2), []
    for number, size in enumerate(reversed(input.shape[2:])):  # x is the image's last dimension
        found.append(neighbours(in_pixels(positions[..., number], size)))
    result = 0
    for corner in itertools.product(*reversed(found)):
        places, weights = zip(*corner, strict=True)
        weight = functools.reduce(operator.mul, weights)
        pixels = read_at(input, places)
        result = result + pixels * weight.unsqueeze(1)
    return result.reshape(*input.shape[:2], *grid.shape[1:-1])


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    image = tensor([[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]]])
    places = tensor([[[[0.0, 0.0], [2 / 3, 0.0], [1 / 3, 1 / 3], [1.0, 1.0], [2.0, 0.0]]]])
    read = grid_sample(image, places)
    print([round(value, 2) for value in read.flatten().tolist()])  # -> [4.0, 5.0, 6.0, 2.0, 0.0]
    # The center; a pixel to the right; between four; a corner, with a quarter inside; outside.

    # A quarter turn: what stands at (x, y) comes from (y, -x).
    steps = tensor([-2 / 3, 0.0, 2 / 3])
    y, x = steps.reshape(3, 1).expand(3, 3), steps.expand(3, 3)
    turned = importlib.import_module("tinytorch.ops.joining").stack([y, -x], -1)
    for line in grid_sample(image, turned[None]).tolist()[0][0]:
        print([round(value, 1) + 0.0 for value in line])
    # -> [6.0, 3.0, 0.0]
    # -> [7.0, 4.0, 1.0]
    # -> [8.0, 5.0, 2.0]

    # A place that learns: where is the image 6.5?
    place = tensor([[[[0.1, 0.1]]]], requires_grad=True)
    for _ in range(100):
        place.grad = None
        ((grid_sample(image, place) - 6.5) ** 2).sum().backward()
        place = (place - 0.02 * place.grad).detach().requires_grad_()
    print(round(grid_sample(image, place).item(), 3))  # -> 6.5

    rng = np.random.default_rng(0)
    image = tensor(rng.normal(size=(1, 2, 3, 3)), requires_grad=True)
    grid = tensor(rng.uniform(-1.2, 1.2, (1, 2, 2, 2)), requires_grad=True)
    print(gradcheck(grid_sample, (image, grid)), gradgradcheck(grid_sample, (image, grid)))
    # -> True True
