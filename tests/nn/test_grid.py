"""grid_sample against plain loops, affine_grid against its formula; both derivatives."""

import itertools
import math

import numpy as np
import pytest

import tinytorch
from tests.derivatives import second_derivatives
from tinytorch.autograd.gradcheck import gradcheck
from tinytorch.nn.functional import affine_grid, grid_sample


def mirrored(x, first, last):
    """x, reflected at both ends until it is between them."""
    while last > first and not first <= x <= last:
        x = 2 * first - x if x < first else 2 * last - x
    return x if last > first else first


def plain(image, grid, mode, padding_mode, aligned):
    """One channel of one image [h, w] at the positions [n, 2], pixel by pixel."""
    (h, w), found = image.shape, []
    for x, y in grid:
        total, weights = 0.0, []
        for value, n in ((y, h), (x, w)):
            place = (value + 1) / 2 * (n - 1) if aligned else ((value + 1) * n - 1) / 2
            if padding_mode == "reflection":
                place = mirrored(place, *((0, n - 1) if aligned else (-0.5, n - 0.5)))
            if padding_mode != "zeros":
                place = min(max(place, 0), n - 1)
            low = math.floor(place)
            near = {round(place): 1.0}
            weights.append(
                near if mode == "nearest" else {low: 1 - place + low, low + 1: place - low}
            )
        for (i, a), (j, b) in itertools.product(*(pairs.items() for pairs in weights)):
            if 0 <= i < h and 0 <= j < w:
                total += a * b * image[i, j]
        found.append(total)
    return found


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_values_and_derivatives(device, mode, padding_mode, aligned):
    rng = np.random.default_rng(0)
    image, grid = rng.normal(size=(1, 1, 3, 4)), rng.uniform(-2.5, 2.5, (1, 4, 5, 2))
    expected = plain(image[0, 0], grid.reshape(-1, 2), mode, padding_mode, aligned)
    image = tinytorch.tensor(image, device=device, requires_grad=True)
    grid = tinytorch.tensor(grid, device=device, requires_grad=True)
    options = mode, padding_mode, aligned
    assert np.allclose(grid_sample(image, grid, *options).flatten().tolist(), expected)
    if mode == "bilinear":
        assert gradcheck(lambda i, g: grid_sample(i, g, *options), (image, grid))
        assert second_derivatives(lambda i, g: grid_sample(i, g, *options), (image, grid))


def test_bicubic_keeps_pixels_and_planes(device):
    """At the centers of pixels there is the pixel; a plane stays a plane inside."""
    plane = tinytorch.arange(30.0, device=device).reshape(1, 1, 5, 6)
    eye = tinytorch.eye(2, 3, device=device)[None]
    same = grid_sample(plane, affine_grid(eye, (1, 1, 5, 6), False), "bicubic", "border", False)
    assert np.allclose(same.tolist(), plane.tolist(), atol=1e-4)
    middle = tinytorch.tensor([[[[0.0, 0.0]]]], device=device)
    assert np.isclose(grid_sample(plane, middle, "bicubic", align_corners=True).item(), 14.5)


def test_affine_grid(device):
    theta = tinytorch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], device=device)
    grid = affine_grid(theta, (1, 1, 2, 2), align_corners=False).tolist()[0]
    for i, y in enumerate((-0.5, 0.5)):
        for j, x in enumerate((-0.5, 0.5)):
            assert grid[i][j] == [x + 2 * y + 3, 4 * x + 5 * y + 6]
    corners = affine_grid(theta, (1, 1, 2, 2), align_corners=True).tolist()[0]
    assert corners[0][1] == [1 - 2 + 3, 4 - 5 + 6]


def test_an_infinite_place_is_outside(device):
    image = tinytorch.ones(1, 1, 2, 2, device=device)
    places = tinytorch.tensor([[[[math.inf, 0.0]]]], device=device)
    assert grid_sample(image, places, "nearest", align_corners=False).item() == 0
