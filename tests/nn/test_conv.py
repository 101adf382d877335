"""Convolution against the sum that defines it, its derivatives, and the layers."""

import itertools

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.nn import functional as F
from tinytorch.ops import convolution

FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
# x, w, stride, padding, dilation, groups: each numbered dimension has numbers of its own
CASES = [
    ((2, 3, 8), (4, 3, 3), (1,), (0,), (1,), 1),
    ((2, 4, 9), (6, 2, 2), (2,), (1,), (3,), 2),
    ((3, 2, 6, 7), (4, 2, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((2, 4, 7, 8), (6, 2, 3, 2), (2, 3), (1, 0), (1, 2), 2),
    ((2, 3, 6, 6), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),  # depthwise
    ((1, 3, 9, 10), (2, 3, 4, 4), (3, 1), (2, 3), (2, 1), 1),
    ((2, 36, 12, 11), (2, 36, 3, 3), (1, 2), (1, 1), (2, 1), 1),  # a product for each kernel row
    ((2, 5, 4, 4), (3, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 2, 4, 5, 6), (4, 1, 2, 3, 2), (1, 2, 1), (1, 0, 2), (1, 1, 2), 2),
]


def defined(x, w, b, stride, padding, dilation, groups):
    """y[n, o, p] = b[o] + sum of w[o, c, k] x[n, c, p * stride + k * dilation - padding]."""
    kernel = w.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    sizes = zip(x.shape[2:], kernel, stride, dilation, strict=True)
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in sizes]
    y = np.zeros((len(x), len(w), *out))
    for o, p, c, k in itertools.product(
        range(len(w)), np.ndindex(*out), range(w.shape[1]), np.ndindex(*kernel)
    ):
        place = [a * s + b * d for a, s, b, d in zip(p, stride, k, dilation, strict=True)]
        group = o // (len(w) // groups)
        y[(slice(None), o, *p)] += w[(o, c, *k)] * x[(slice(None), group * w.shape[1] + c, *place)]
    return y + b.reshape(-1, *[1] * len(kernel))


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in shapes]


def tensors(device, *values):
    return [tinytorch.tensor(a, device=device, requires_grad=True) for a in values]


@pytest.mark.parametrize("block", [2**18, 30])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case, block, device, monkeypatch):
    """In one block and in many. <g, y> is linear in x and in w, so that its gradients follow from
    values: <gx, u> = <g, conv(u, w)> for each u, and the same for w."""
    monkeypatch.setattr(convolution, "BLOCK", block)
    monkeypatch.setattr(convolution, "COLUMNS", 512 if block > 100 else 1)
    x_shape, w_shape, *options = case
    x, w, b, u, v = arrays(x_shape, w_shape, w_shape[:1], x_shape, w_shape)
    tx, tw, tb = tensors(device, x, w, b)
    y = FUNCTIONS[len(x_shape) - 2](tx, tw, tb, *options)
    np.testing.assert_allclose(y.detach().cpu().numpy(), defined(x, w, b, *options), atol=1e-11)
    (g,) = arrays(y.shape)
    y.backward(tinytorch.tensor(g, device=device))
    gx, gw, gb = (t.grad.cpu().numpy() for t in (tx, tw, tb))
    assert np.isclose((gx * u).sum(), (g * defined(u, w, b * 0, *options)).sum())
    assert np.isclose((gw * v).sum(), (g * defined(x, v, b * 0, *options)).sum())
    np.testing.assert_allclose(gb, g.sum((0, *range(2, g.ndim))), atol=1e-11)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transposed(case, device):
    """<conv(x), g> = <x, conv_transpose(g)> for each x."""
    x_shape, w_shape, stride, padding, dilation, groups = case
    n = len(x_shape) - 2
    x, w, none = arrays(x_shape, w_shape, w_shape[:1])
    y = defined(x, w, none * 0, stride, padding, dilation, groups)
    g, b = arrays(y.shape, (x_shape[1],))
    reach = [(k - 1) * d + 1 for k, d in zip(w_shape[2:], dilation, strict=True)]
    sizes = zip(x_shape[2:], y.shape[2:], stride, padding, reach, strict=True)
    extra = [a - ((o - 1) * s - 2 * p + r) for a, o, s, p, r in sizes]
    tg, tw, tb = tensors(device, g, w, b)
    back = TRANSPOSED[n](tg, tw, tb, stride, padding, extra, groups, dilation)
    assert back.shape == x_shape and back.grad_fn.name() == "ConvolutionBackward0"
    back = back.detach().cpu().numpy() - b.reshape(-1, *[1] * n)
    assert np.isclose((back * x).sum(), (y * g).sum())


@pytest.mark.parametrize(
    "x_shape, w_shape, options",
    [
        ((2, 4, 6), (2, 2, 3), (2, 1, 1, 2)),
        ((2, 2, 4, 3), (3, 2, 2, 2), ((1, 2), (1, 0), (2, 1), 1)),
        ((1, 2, 3, 3, 2), (2, 1, 2, 2, 1), (1, 0, 1, 2)),
    ],
    ids=str,
)
def test_derivatives_twice(x_shape, w_shape, options, device):
    n = len(x_shape) - 2
    x, w, b = tensors(device, *arrays(x_shape, w_shape, w_shape[:1]))
    assert gradcheck(lambda *a: FUNCTIONS[n](*a, *options), (x, w, b))
    assert gradgradcheck(lambda *a: FUNCTIONS[n](*a, *options), (x, w, b))
    stride, padding, dilation, groups = options
    (g,) = tensors(device, *arrays((x_shape[0], w_shape[0], *x_shape[2:])))

    def back(g, w):
        return TRANSPOSED[n](g, w, None, stride, padding, 0, groups, dilation)

    assert gradcheck(back, (g, w)) and gradgradcheck(back, (g, w))


@pytest.mark.parametrize(
    "dtype", [tinytorch.float16, tinytorch.float32, tinytorch.float64], ids=str
)
def test_element_types(dtype):
    x, w, b = (tinytorch.tensor(a).to(dtype) for a in arrays((2, 3, 9, 9), (4, 3, 3, 3), (4,)))
    x.requires_grad_()
    y = F.conv2d(x, w, b)
    y.sum().backward()
    assert y.dtype is x.grad.dtype is dtype
    exact = defined(*(a.detach().double().numpy() for a in (x, w, b)), *[(1, 1), (0, 0), (1, 1)], 1)
    close = {tinytorch.float16: 1e-2, tinytorch.float32: 1e-5}.get(dtype, 1e-12)
    np.testing.assert_allclose(y.detach().double().numpy(), exact, atol=close)


def test_halves_are_added_up_as_float32():
    ones = tinytorch.ones(1, 1, 3000, dtype=tinytorch.float16)
    assert F.conv_transpose1d(ones, ones)[0, 0, 2999].item() == 3000


def test_unbatched_and_empty():
    x, w = tinytorch.randn(3, 5, 5), tinytorch.randn(2, 3, 3, 3)
    np.testing.assert_allclose(F.conv2d(x, w).numpy(), F.conv2d(x[None], w)[0].numpy())
    assert F.conv_transpose2d(x, tinytorch.randn(3, 2, 3, 3)).shape == (2, 7, 7)
    empty = tinytorch.randn(0, 3, 5, 5, requires_grad=True)
    y = F.conv2d(empty, w, padding="same")
    y.sum().backward()
    assert y.shape == (0, 2, 5, 5) and empty.grad.shape == (0, 3, 5, 5)


def test_same_padding_puts_the_odd_zero_behind():
    x = tinytorch.tensor([[[1.0, 10.0, 100.0]]])
    assert F.conv1d(x, tinytorch.ones(1, 1, 2), padding="same").tolist() == [[[11, 110, 100]]]
    assert F.conv1d(x, tinytorch.ones(1, 1, 2), padding="valid").tolist() == [[[11, 110]]]


def test_output_padding_may_exceed_the_stride_where_dilation_is_larger():
    y = F.conv_transpose1d(
        tinytorch.ones(1, 1, 2), tinytorch.ones(1, 1, 2), tinytorch.ones(1), 1, 0, 2, 1, 3
    )
    assert y.tolist() == [[[2, 2, 1, 2, 2, 1, 1]]]


X, W = tinytorch.ones(1, 4, 6, 6), tinytorch.ones(2, 4, 3, 3)
REFUSED = [
    lambda: F.conv2d(X[0, 0], W),
    lambda: F.conv2d(X, W[0]),
    lambda: F.conv2d(X, W[:, :3]),
    lambda: F.conv2d(X, W, groups=2),
    lambda: F.conv2d(X, W, groups=0),
    lambda: F.conv2d(X, W, tinytorch.ones(3)),
    lambda: F.conv2d(X, W.double()),
    lambda: F.conv2d(X, W, stride=0),
    lambda: F.conv2d(X, W, padding=-1),
    lambda: F.conv2d(X, W, dilation=0),
    lambda: F.conv2d(X, W, stride=(1, 1, 1)),
    lambda: F.conv2d(X, W, dilation=3),
    lambda: F.conv2d(X, W, padding="some"),
    lambda: F.conv2d(X, W, stride=2, padding="same"),
    lambda: F.conv_transpose2d(X, W),
    lambda: F.conv_transpose2d(X, tinytorch.ones(4, 2, 3, 3), output_padding=1),
    lambda: F.unfold(X, 7),
    lambda: F.unfold(X[0, 0], 2),
    lambda: F.fold(tinytorch.ones(1, 4, 8), (4, 4), 2),
    lambda: F.fold(tinytorch.ones(1, 5, 9), (4, 4), 2),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number):
    with pytest.raises(RuntimeError):
        REFUSED[number]()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(4, 3, 3, groups=2),
        lambda: nn.Conv2d(4, 4, 3, groups=0),
        lambda: nn.Conv1d(1, 1, 3, padding_mode="mirror"),
        lambda: nn.Conv1d(1, 1, 3, padding="some"),
        lambda: nn.Conv1d(1, 1, 3, stride=2, padding="same"),
        lambda: nn.ConvTranspose1d(1, 1, 3, padding_mode="reflect"),
        lambda: nn.ConvTranspose2d(1, 1, 3, 2)(tinytorch.ones(1, 1, 4, 4), output_size=(12, 9)),
    ],
)
def test_layers_refuse(make):
    with pytest.raises(ValueError):
        make()


def test_start_values():
    """Weight, then bias, from the uniform distribution within 1 / sqrt(weights of an output)."""
    for layer in (nn.Conv2d(8, 6, (3, 5), groups=2), nn.ConvTranspose1d(12, 30, 2, groups=2)):
        bound = np.prod(layer.weight.shape[1:]) ** -0.5
        values = layer.weight.detach().numpy().ravel()
        assert abs(values).max() < bound and values.std() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert abs(layer.bias.detach().numpy()).max() < bound


@pytest.mark.parametrize(
    "mode, numpys", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_padding_modes(mode, numpys, device):
    layer = nn.Conv2d(2, 3, (2, 3), padding="same", padding_mode=mode, device=device)
    (x,) = arrays((1, 2, 5, 6))
    wide = np.pad(x, [(0, 0), (0, 0), (0, 1), (1, 1)], mode=numpys)
    w, b = (p.detach().cpu().double().numpy() for p in (layer.weight, layer.bias))
    y = layer.double()(tinytorch.tensor(x, device=device)).detach().cpu().numpy()
    np.testing.assert_allclose(y, defined(wide, w, b, (1, 1), (0, 0), (1, 1), 1), atol=1e-11)


def test_output_size():
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
    x = tinytorch.ones(2, 1, 4, 4)
    assert layer(x).shape == (2, 1, 7, 7) and layer(x, output_size=(8, 7)).shape == (2, 1, 8, 7)
    assert layer(x, output_size=(2, 1, 7, 8)).shape == (2, 1, 7, 8)


def test_unfold_and_fold(device):
    (x,) = arrays((2, 3, 7, 6))
    (t,) = tensors(device, x)
    columns = F.unfold(t, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
    wide, expected = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)]), []
    for c, a, b in itertools.product(range(3), range(2), range(3)):
        expected.append(wide[:, c, 2 * a : 2 * a + 7, b : b + 4 : 2].reshape(2, -1))
    np.testing.assert_array_equal(columns.detach().cpu().numpy(), np.stack(expected, 1))
    counts = F.fold(F.unfold(t * 0 + 1, 2), (7, 6), 2)[0, 0].detach().cpu().numpy()
    np.testing.assert_array_equal(counts, np.outer([1, *[2] * 5, 1], [1, *[2] * 4, 1]))
    (small,) = tensors(device, *arrays((1, 2, 3, 4)))
    for f in (lambda x: F.unfold(x, 2, 1, 1, 2), lambda x: F.fold(x.reshape(1, 4, 6), (3, 4), 2)):
        assert gradcheck(f, (small,)) and gradgradcheck(f, (small * 1,))
    assert F.fold(F.unfold(t[0], 2), (7, 6), 2).shape == (3, 7, 6)
    assert repr(nn.Fold((4, 4), 2)) == (
        "Fold(output_size=(4, 4), kernel_size=2, dilation=1, padding=0, stride=1)"
    )


@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d])
def test_a_batch_without_images(layer, device):
    layer = layer(3, 4, 3, padding=1, device=device)
    x = tinytorch.zeros(0, 3, *[5] * (layer.weight.ndim - 2), device=device, requires_grad=True)
    y = layer(x)
    assert y.shape == (0, 4, *x.shape[2:])
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert layer.weight.grad.shape == layer.weight.shape and not layer.weight.grad.any()
    assert layer.bias.grad.tolist() == [0.0] * 4
