"""Step grid02: grid_sample beyond the border of an image

A picture that is turned by 45 degrees has black corners: step grid01 reads zeros there. Two other
answers move the place back into the image before anything is read:

    border          the nearest pixel of the border: clamp
    reflection      the image in a mirror, and beyond that in the next one: a zigzag

A zigzag is a line that is folded. Divide the distance from the first mirror by the distance of the
two mirrors; after an odd number of crossings the place goes backwards.

There is a second question. What is -1: the outer edge of the first pixel, or its center?
align_corners=True means the center, as in step upsample04; then the mirrors stand there, too.

"nearest" takes the next pixel and has no weights, so the grid has a gradient of zeros.

The trap: clamp has a gradient of 1 exactly at the border, where the place can be moved outwards
without any effect. Only a place inside, `free`, passes a gradient on.

PyTorch's words for it are padding_mode, align_corners and mode.
New: pulled_inside. Changed: in_pixels, neighbours, grid_sample.
Try: read at x = 3 and x = 5 with "reflection". Where do these places end?
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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck

    row = tensor([[[[0.0, 1.0, 2.0, 3.0]]]])
    places = tensor([[[[-2.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [1.25, 0.0], [2.0, 0.0]]]])

    def read(*options):
        return [round(value, 2) for value in grid_sample(row, places, *options).flatten().tolist()]

    print(read())  # -> [0.0, 0.0, 1.5, 0.0, 0.0]
    print(read("bilinear", "border"))  # -> [0.0, 0.0, 1.5, 3.0, 3.0]
    print(read("bilinear", "reflection"))  # -> [1.5, 0.0, 1.5, 3.0, 1.5]
    print(read("bilinear", "reflection", True))  # -> [1.5, 0.0, 1.5, 2.62, 1.5]
    print(read("nearest", "border"))  # -> [0.0, 0.0, 2.0, 3.0, 3.0]

    x = tensor([[[[0.3, 0.1], [1.7, -0.2]]]], requires_grad=True)
    image = tensor([[[[1.0, 2.0], [4.0, 8.0]]]])
    grid_sample(image, x, "bilinear", "border").sum().backward()
    print([[round(d, 2) for d in place] for place in x.grad.tolist()[0][0]])
    # -> [[2.8, 5.4], [0.0, 6.0]]
    # The second place is outside in x, and inside in y.
    x.grad = None
    grid_sample(image, x, "nearest").sum().backward()
    print(x.grad.tolist()[0][0])  # -> [[0.0, 0.0], [0.0, 0.0]]

    rng = np.random.default_rng(0)
    image = tensor(rng.normal(size=(1, 2, 3, 3)), requires_grad=True)
    grid = tensor(rng.uniform(-1.9, 1.9, (1, 2, 2, 2)), requires_grad=True)
    for options in itertools.product(["bilinear"], ["border", "reflection"], [False, True]):
        print(*options[1:], gradcheck(lambda i, g, o=options: grid_sample(i, g, *o), (image, grid)))
    # -> border False True
    # -> border True True
    # -> reflection False True
    # -> reflection True True
