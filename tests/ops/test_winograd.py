"""Winograd's convolution against the direct form in float64, which its gradients must equal too."""

import math

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd.gradcheck import gradgradcheck
from tinytorch.core.device import device_of
from tinytorch.nn import functional as F
from tinytorch.ops import winograd
from tinytorch.ops.convolution import Geometry, convolve, convolve_input, convolve_weight
from tinytorch.ops.winograd import POINTS, Tiles, convolve_tiles, convolve_tiles_back, matrices

# [N, C, height, width], outputs, ((top, bottom), (left, right)): sizes of one tile, of whole tiles,
# between them, smaller than a tile, and padding beyond the kernel.
CASES = [
    ((2, 3, 6, 6), 4, ((0, 0), (0, 0))),
    ((3, 2, 10, 14), 5, ((0, 0), (0, 0))),
    ((2, 3, 9, 12), 2, ((1, 1), (1, 1))),
    ((1, 4, 3, 5), 3, ((0, 0), (0, 0))),
    ((2, 3, 1, 2), 2, ((1, 1), (2, 1))),
    ((5, 1, 7, 8), 1, ((0, 3), (4, 0))),
]


def arrays(device, *shapes, dtype=np.float64):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    return [tinytorch.tensor(value, device=device).array for value in values]


def host(array):
    return device_of(array).backend.to_numpy(array)


def direct_geometry(x_shape, w_shape, pads):
    geo = Geometry(x_shape, w_shape, (1, 1), pads, (1, 1), 1)
    geo.tiles = None
    return geo


@pytest.mark.parametrize("points", [(0, 1, -1), (0, 1, -1, 2), POINTS, (0, 1, -1, 2, -2, 0.5)])
def test_matrices_give_the_outputs_of_a_kernel(points):
    a, b, g = matrices(points)
    n = len(points) + 1
    assert a.shape == (n, n - 2) and b.shape == (n, n) and g.shape == (n, 3)
    d, w = np.random.default_rng(0).standard_normal((2, n))
    np.testing.assert_allclose(a.T @ ((b @ d) * (g @ w[:3])), np.correlate(d, w[:3]), atol=1e-12)


@pytest.mark.parametrize("block", [winograd.BLOCK, 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case, block, device, monkeypatch):
    """In one block and in one for each image."""
    monkeypatch.setattr(winograd, "BLOCK", block)
    x_shape, o, pads = case
    w_shape = (o, x_shape[1], 3, 3)
    geo = direct_geometry(x_shape, w_shape, pads)
    x, w, g, b, c = arrays(device, x_shape, w_shape, geo.y_shape, o, x_shape[1])
    tiles = Tiles(x_shape, w_shape, pads, geo.out)
    assert len(tiles.blocks) == (x_shape[0] if block == 1 else 1)
    gx, gw = convolve_tiles_back(x, g, w, None, tiles)
    pairs = [
        (convolve_tiles(x, w, b, tiles), convolve(x, w, b, geo)),
        (convolve_tiles(x, w, None, tiles), convolve(x, w, None, geo)),
        (gx, convolve_input(g, w, None, geo)),
        (gw, convolve_weight(x, g, geo)),
        (convolve_tiles_back(None, g, w, c, tiles)[0], convolve_input(g, w, c, geo)),
        (convolve_tiles_back(x, g, None, None, tiles)[1], gw),
    ]
    for found, expected in pairs:
        assert found.flags.c_contiguous and found.shape == expected.shape
        np.testing.assert_allclose(host(found), host(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("channels", [(32, 64), (64, 64), (64, 32)])
def test_float32_rounds_little(channels, device):
    """Over a float64 reference, of size 1: the limit of 1e-5 that float32 results are held to."""
    c, o = channels
    x, w, g = arrays(device, (4, c, 18, 20), (o, c, 3, 3), (4, o, 18, 20), dtype=np.float32)
    pads = (1, 1), (1, 1)
    geo, exact = (make(x.shape, w.shape, pads) for make in (chosen_geometry, direct_geometry))
    assert geo.tiled(x)
    wide = [array.astype(np.float64) for array in (x, w, g)]
    pairs = [
        (convolve(x, w, None, geo), convolve(wide[0], wide[1], None, exact)),
        (convolve_input(g, w, None, geo), convolve_input(wide[2], wide[1], None, exact)),
        (convolve_weight(x, g, geo), convolve_weight(wide[0], wide[2], exact)),
    ]
    for found, expected in pairs:
        assert found.dtype == np.float32
        found, expected = host(found), host(expected)
        error = (found - expected) / expected.std()
        assert np.sqrt(np.mean(error**2)) < 2e-6 and abs(error).max() < 2e-5


def chosen_geometry(x_shape, w_shape, pads, stride=(1, 1), dilation=(1, 1), groups=1):
    return Geometry(x_shape, w_shape, stride, pads, dilation, groups)


def test_which_convolutions_take_tiles():
    none, x = ((0, 0), (0, 0)), np.zeros(1, np.float32)
    x_shape, w_shape = (8, 32, 18, 18), (64, 32, 3, 3)
    assert chosen_geometry(x_shape, w_shape, none).tiled(x)
    assert not chosen_geometry(x_shape, w_shape, none).tiled(x.astype(np.float64))
    others = [
        chosen_geometry(x_shape, (64, 32, 3, 2), none),
        chosen_geometry(x_shape, w_shape, none, stride=(1, 2)),
        chosen_geometry(x_shape, w_shape, none, dilation=(2, 2)),
        chosen_geometry((8, 64, 18, 18), w_shape, none, groups=2),
        chosen_geometry((2, 32, 18, 18), w_shape, none),  # few tiles
        chosen_geometry((8, 16, 18, 18), (64, 16, 3, 3), none),  # few channels
        chosen_geometry((8, 128, 18, 18), (64, 128, 3, 3), none),  # many
        chosen_geometry((8, 32, 18), (64, 32, 3), none[:1], (1,), (1,)),
        chosen_geometry((8, 32, 1, 18), w_shape, none),  # nothing fits
        chosen_geometry((0, 32, 18, 18), w_shape, none),
    ]
    assert not any(geo.tiled(x) for geo in others)


def test_layer_and_second_derivative(device):
    """Both gradients at once, each alone, in a graph, transposed: all equal the direct form."""
    shapes = (4, 32, 18, 18), (32, 32, 3, 3), (32,), (4, 32, 16, 16)
    values = arrays(device, *shapes, dtype=np.float32)

    def derivatives(dtype, needed=(True, True)):
        x, w, b, g = (tinytorch.tensor(host(v), dtype=dtype, device=device) for v in values)
        x.requires_grad, w.requires_grad = needed
        y = F.conv2d(x, w, b)
        back = F.conv_transpose2d(g, w, b)
        if not all(needed):
            wanted = x if needed[0] else w
            return y, back, *tinytorch.autograd.grad(y, wanted, g)
        first = tinytorch.autograd.grad(y, (x, w), g, create_graph=True)
        total = sum((each * each).sum() for each in first)
        plain = tinytorch.autograd.grad(F.conv2d(x, w, b), (x, w), g)
        return y, back, *first, *plain, *tinytorch.autograd.grad(total, (x, w))

    for needed in ((True, True), (True, False), (False, True)):
        found = derivatives(tinytorch.float32, needed)
        exact = derivatives(tinytorch.float64, needed)
        for one, two in zip(found, exact, strict=True):
            one, two = host(one.detach().array), host(two.detach().array)
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=2e-5 * two.std())


def test_gradients_of_gradients_in_float64(monkeypatch):
    """With tiles for every type and size, gradgradcheck sees the formulas themselves."""
    monkeypatch.setattr(Geometry, "tiled", lambda geo, x: geo.tiles is not None)
    x, w = (
        tinytorch.tensor(v, requires_grad=True) for v in arrays("cpu", (2, 2, 5, 6), (2, 2, 3, 3))
    )
    assert gradgradcheck(lambda x, w: F.conv2d(x, w, padding=1), (x, w))


def test_blocks_cover_all_images(monkeypatch):
    monkeypatch.setattr(winograd, "BLOCK", 36 * 4 * 64 * 3)
    tiles = Tiles((7, 32, 8, 8), (32, 32, 3, 3), ((1, 1), (1, 1)), (8, 8))
    found = [i for images in tiles.blocks for i in range(7)[images]]
    assert found == list(range(7)) and len(tiles.blocks) == math.ceil(7 / 3)
