"""nn/modules/pooling.py, upsampling.py and pixelshuffle.py: values against loops over windows and
pixels, derivatives on each device, and what is refused. PyTorch is compared in tests/parity."""

import functools
import itertools
import math

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.derivatives import second_derivatives
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def numbers(*shape, device="cpu", seed=0):
    return tensor(np.random.default_rng(seed).normal(size=shape), device=device, requires_grad=True)


def windows(x, kernel, stride, padding=0, dilation=1, ceil=False):
    """For each output of a plane: the elements of its window as {place in the plane: value}, and
    how many places of the padded plane it covers."""
    outs = []
    for n in x.shape:
        reach = dilation * (kernel - 1) + 1
        out = (
            math.ceil((n + 2 * padding - reach) / stride)
            if ceil
            else (n + 2 * padding - reach) // stride
        )
        outs.append(out + 1 - (ceil and out * stride >= n + padding))
    found = {}
    for o in np.ndindex(*outs):
        seen, covered = {}, 0
        for t in itertools.product(range(kernel), repeat=x.ndim):
            place = tuple(i * stride + j * dilation - padding for i, j in zip(o, t, strict=False))
            covered += all(i < n + padding for i, n in zip(place, x.shape, strict=False))
            if all(0 <= i < n for i, n in zip(place, x.shape, strict=False)):
                seen[place] = x[place]
        found[o] = seen, covered
    return outs, found


OPTIONS = {
    "beside each other": (2, 2, 0, 1, False),
    "overlap": (3, 1, 0, 1, False),
    "gaps": (2, 3, 0, 1, False),
    "padding": (3, 2, 1, 1, False),
    "dilation": (2, 1, 1, 2, False),
    "ceil": (2, 2, 0, 1, True),
    "ceil, padding": (3, 2, 1, 1, True),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shape", [(7,), (5, 6), (4, 3, 5)], ids=str)
def test_max_pool(device, name, shape):
    kernel, stride, padding, dilation, ceil = OPTIONS[name]
    x = numbers(1, 2, *shape, device=device)
    pool = getattr(F, f"max_pool{len(shape)}d")
    options = (kernel, stride, padding, dilation, ceil)
    y, places = pool(x, *options, return_indices=True)
    assert np.array_equal(pool(x.detach(), *options).numpy(force=True), y.numpy(force=True))
    for channel, (values, found) in enumerate(
        zip(y[0].numpy(force=True), places[0].numpy(force=True), strict=False)
    ):
        plane = x.numpy(force=True)[0, channel]
        outs, expected = windows(plane, *options)
        assert values.shape == tuple(outs)
        for o, (seen, _) in expected.items():
            best = max(seen, key=seen.get)
            assert values[o] == seen[best]
            assert found[o] == np.ravel_multi_index(best, plane.shape)
    assert gradcheck(lambda x: pool(x, *options), x)
    assert second_derivatives(lambda x: pool(x, *options), x)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "dilation"])
@pytest.mark.parametrize("shape", [(7,), (5, 6), (4, 3, 5)], ids=str)
def test_avg_pool(device, name, shape, include):
    kernel, stride, padding, _, ceil = OPTIONS[name]
    x = numbers(1, 2, *shape, device=device)

    def pool(x):
        return getattr(F, f"avg_pool{len(shape)}d")(x, kernel, stride, padding, ceil, include)

    for channel, values in enumerate(pool(x)[0].numpy(force=True)):
        _, expected = windows(x.numpy(force=True)[0, channel], kernel, stride, padding, 1, ceil)
        for o, (seen, covered) in expected.items():
            assert np.isclose(values[o], sum(seen.values()) / (covered if include else len(seen)))
    assert gradcheck(pool, x) and second_derivatives(pool, x)


@pytest.mark.parametrize("sizes", [1, 2, (3, 1), (None, 4), (5, 6), (7, 9), (0, 3), 0], ids=str)
def test_adaptive(device, sizes):
    x = numbers(2, 2, 5, 6, device=device)
    data = x.numpy(force=True)
    outs = sizes if isinstance(sizes, tuple) else (sizes, sizes)
    outs = tuple(n if out is None else out for n, out in zip((5, 6), outs, strict=False))
    average, (largest, places) = (
        F.adaptive_avg_pool2d(x, sizes),
        F.adaptive_max_pool2d(x, sizes, True),
    )
    for i, j in np.ndindex(*outs):
        rows = slice(i * 5 // outs[0], -(-(i + 1) * 5 // outs[0]))
        columns = slice(j * 6 // outs[1], -(-(j + 1) * 6 // outs[1]))
        window = data[:, :, rows, columns]
        assert np.allclose(average.numpy(force=True)[..., i, j], window.mean((2, 3)))
        assert np.array_equal(largest.numpy(force=True)[..., i, j], window.max((2, 3)))
    assert average.shape == largest.shape == (2, 2, *outs)
    taken = np.take_along_axis(
        data.reshape(2, 2, 30), places.numpy(force=True).reshape(2, 2, -1), 2
    )
    assert np.array_equal(taken.reshape(largest.shape), largest.numpy(force=True))
    for function in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        assert gradcheck(functools.partial(function, output_size=sizes), x)
        assert second_derivatives(functools.partial(function, output_size=sizes), x)


def test_ties_and_nan(device):
    x = tensor([[[2.0, 2.0, -math.inf, -math.inf]]], device=device, requires_grad=True)
    y, places = F.max_pool1d(x, 2, return_indices=True)
    y.sum().backward()
    assert x.grad.tolist() == [[[1, 0, 1, 0]]] and places.tolist() == [[[0, 2]]]
    nan = tensor([[[1.0, math.nan, 3.0, 2.0]]], device=device)
    assert str(F.max_pool1d(nan, 2).tolist()) == "[[[nan, 3.0]]]"


def test_types_stay(device):
    for dtype in (tinytorch.float16, tinytorch.bfloat16, tinytorch.float64):
        x = tensor(np.arange(16.0).reshape(1, 4, 4), device=device).to(dtype)
        for y in (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 3),
            F.adaptive_max_pool2d(x, 3),
            F.interpolate(x[None], scale_factor=2, mode="bilinear"),
            F.interpolate(x[None], size=3),
        ):
            assert y.dtype is dtype
    x = tensor([[[-3, -5, 4, 7]]], device=device)
    assert F.max_pool1d(x, 2, 2, 1).tolist() == [[[-3, 4, 7]]]
    assert F.avg_pool1d(x, 2).tolist() == [[[-4, 5]]]
    # 4,096 ones of float16 add up to 4,096, though float16 cannot count one by one beyond 2,048.
    ones = tinytorch.ones(1, 64, 64, dtype=tinytorch.float16, device=device)
    assert F.avg_pool2d(ones, 64, divisor_override=4).item() == 1024


def test_a_large_window(device):
    x = numbers(1, 1, 20, 20, device=device)  # more places than a byte can number
    y, places = F.max_pool2d(x, 18, 1, return_indices=True)
    assert y[0, 0, 1, 1].item() == x.numpy(force=True)[0, 0, 1:19, 1:19].max()
    y.sum().backward()
    assert x.grad.sum().item() == 9 and x.grad.flatten()[places[0, 0, 1, 1]].item() >= 1


def loop_resize(row, out, scale, weights):
    return [
        sum(w * row[min(max(j, 0), len(row) - 1)] for j, w in weights(o, scale)) for o in range(out)
    ]


def test_resize(device):
    row = np.array([1.0, 5.0, 2.0, 8.0])

    def linear(o, scale):
        center = max((o + 0.5) * scale - 0.5, 0)
        j = int(center)
        return [(j, 1 - (center - j)), (j + 1, center - j)]

    def nearest(o, scale):
        return [(int(o * scale), 1.0)]

    x = tensor(row[None, None], device=device)
    for out in (2, 3, 4, 7, 8):
        for mode, weights in (("linear", linear), ("nearest", nearest)):
            expected = loop_resize(row, out, 4 / out, weights)
            assert np.allclose(F.interpolate(x, out, mode=mode).numpy(force=True)[0, 0], expected)
    assert F.interpolate(
        x, 7, mode="linear", align_corners=True
    ).flatten().tolist() == pytest.approx([1, 3, 5, 3.5, 2, 5, 8])
    # The scale is that of the argument, not that of the sizes, unless it is recomputed.
    assert F.interpolate(x[..., :2], scale_factor=2.3).tolist() == [[[1, 1, 1, 5]]]
    again = F.interpolate(x[..., :2], scale_factor=2.3, recompute_scale_factor=True)
    assert again.tolist() == [[[1, 1, 5, 5]]]


MODES = ["nearest", "nearest-exact", "bilinear", "bicubic", "area"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(6, 8), (5, 3)], ids=str)
def test_derivatives_of_resizing(device, mode, size):
    x = numbers(1, 2, 3, 4, device=device)
    assert gradcheck(lambda x: F.interpolate(x, size, mode=mode), x)
    assert gradgradcheck(lambda x: F.interpolate(x, size, mode=mode), x)
    flat = tinytorch.full((1, 1, 3, 4), 2.5, device=device)
    for antialias in (False, True)[: 1 + (mode in ("bilinear", "bicubic"))]:
        same = F.interpolate(flat, size, mode=mode, antialias=antialias)
        assert np.allclose(same.numpy(force=True), 2.5)


def test_pixel_shuffle(device):
    x = numbers(2, 8, 2, 3, device=device)
    y = F.pixel_shuffle(x, 2)
    assert y.shape == (2, 2, 4, 6)
    for i, j in np.ndindex(2, 2):
        ours = y.numpy(force=True)[:, :, i::2, j::2]
        assert np.array_equal(ours, x.numpy(force=True)[:, 2 * i + j :: 4])
    assert np.array_equal(F.pixel_unshuffle(y, 2).numpy(force=True), x.numpy(force=True))
    assert gradcheck(lambda x: F.pixel_shuffle(x, 2), x)


X = [[[1.0, 2.0, 3.0, 4.0]] * 4]
ERRORS = {
    "kernel 0": (lambda x: F.max_pool2d(x, 0), RuntimeError, "no windows"),
    "stride 0": (lambda x: F.avg_pool2d(x, 2, 0), RuntimeError, "no windows"),
    "padding": (lambda x: F.max_pool2d(x, 2, 2, 2), RuntimeError, "at most half"),
    "too large": (lambda x: F.max_pool2d(x, 5), RuntimeError, "no windows"),
    "numbers": (lambda x: F.max_pool2d(x, (2, 2, 2)), RuntimeError, "one number or 2"),
    "dimensions": (lambda x: F.max_pool3d(x[0], 2), RuntimeError, "4D or 5D"),
    "divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=0), RuntimeError, "not zero"),
    "negative": (lambda x: F.adaptive_avg_pool2d(x, -1), RuntimeError, "greater than"),
    "integers": (lambda x: F.adaptive_avg_pool2d(x.long(), 3), NotImplementedError, "int64"),
    "no size": (lambda x: F.interpolate(x[None]), ValueError, "either size"),
    "both": (lambda x: F.interpolate(x[None], 2, 2), ValueError, "either size"),
    "two sizes": (lambda x: F.interpolate(x, (2, 2)), ValueError, "either size"),
    "mode": (lambda x: F.interpolate(x[None], 2, mode="linear"), NotImplementedError, "4-D"),
    "corners": (lambda x: F.interpolate(x, 2, align_corners=True), ValueError, "nearest"),
    "antialias": (lambda x: F.interpolate(x, 2, antialias=True), ValueError, "bilinear"),
    "nothing": (lambda x: F.interpolate(x, scale_factor=0.1), RuntimeError, "greater than 0"),
    "channels": (lambda x: F.pixel_shuffle(x, 2), RuntimeError, "divisible"),
    "sizes": (lambda x: F.pixel_unshuffle(x, 3), RuntimeError, "divisible"),
    "no image": (lambda x: F.pixel_shuffle(x[0], 2), RuntimeError, "at least 3"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor(X, device=device))


def test_layers():
    x = tensor([X])
    assert nn.MaxPool2d(2)(x).tolist() == [[[[2, 4], [2, 4]]]]
    values, places = nn.MaxPool2d(2, return_indices=True)(x)
    assert values.tolist() == [[[[2, 4], [2, 4]]]] and places.tolist() == [[[[1, 3], [9, 11]]]]
    assert nn.MaxPool2d(3, 2, 0, 1, False, True)(x).shape == (1, 1, 2, 2)
    assert nn.AvgPool2d((4, 1))(x).tolist() == [[[[1, 2, 3, 4]]]]
    assert nn.AdaptiveAvgPool2d((1, 2))(x).tolist() == [[[[1.5, 3.5]]]]
    assert (
        nn.Upsample(scale_factor=2)(x).shape == nn.UpsamplingBilinear2d(8)(x).shape == (1, 1, 8, 8)
    )
    assert nn.PixelUnshuffle(2)(x).shape == (1, 4, 2, 2)
    text = "kernel_size=2, stride=2, padding=0"
    assert repr(nn.MaxPool2d(2)) == f"MaxPool2d({text}, dilation=1, ceil_mode=False)"
    assert repr(nn.AvgPool1d(2)) == "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"
    assert repr(nn.AdaptiveMaxPool2d((None, 3))) == "AdaptiveMaxPool2d(output_size=(None, 3))"
    assert (
        repr(nn.Upsample(scale_factor=(2, 3)))
        == "Upsample(scale_factor=(2.0, 3.0), mode='nearest')"
    )
