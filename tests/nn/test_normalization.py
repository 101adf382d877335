"""Normalisations against a plain formula, their derivatives, types, refusals, and dropout of whole
channels, on each device; PyTorch is compared in tests/parity."""

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.derivatives import second_derivatives
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def numbers(*shape, device="cpu", seed=0, far=0.0, dtype=None):
    array = np.random.default_rng(seed).normal(size=shape) * 1.5 + 0.3 + far
    return tensor(array, device=device, dtype=dtype).requires_grad_()


def plain(x, dims, weight, bias, eps=1e-5, centered=True):
    """The formula, in NumPy and float64."""
    x = x.astype(np.float64)
    c = x - x.mean(axis=dims, keepdims=True) * centered
    return c / np.sqrt((c * c).mean(axis=dims, keepdims=True) + eps) * weight + bias


def batch(x, w, b):
    return F.batch_norm(x, None, None, w, b, True)


def instance(x, w, b):
    return F.instance_norm(x, None, None, w, b)


# name -> (function of x, weight, bias; shape of x; shape of weight; dims; shape beside x)
KINDS = {
    "batch, rows": (batch, (6, 4), (4,), (0,), (4,)),
    "batch, images": (batch, (3, 4, 2, 5), (4,), (0, 2, 3), (4, 1, 1)),
    "instance": (instance, (3, 4, 2, 5), (4,), (2, 3), (4, 1, 1)),
    "layer": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 2, 4), (4,), (2,), (4,)),
    "two dims": (lambda x, w, b: F.layer_norm(x, (3, 4), w, b), (5, 3, 4), (3, 4), (1, 2), (3, 4)),
    "four groups": (lambda x, w, b: F.group_norm(x, 4, w, b), (3, 4, 5), (4,), (2,), (4, 1)),
    "one group": (lambda x, w, b: F.group_norm(x, 1, w, b), (3, 4, 5), (4,), (1, 2), (4, 1)),
}


@pytest.mark.parametrize("far", [0.0, 1000.0])
@pytest.mark.parametrize("name", KINDS)
def test_values_and_derivatives(device, name, far):
    function, shape, size, dims, beside = KINDS[name]
    x = numbers(*shape, device=device, far=far)
    w, b = (numbers(*size, device=device, seed=seed) for seed in (1, 2))
    arrays = [t.numpy(force=True) for t in (x, w, b)]
    expected = plain(arrays[0], dims, arrays[1].reshape(beside), arrays[2].reshape(beside))
    np.testing.assert_allclose(function(x, w, b).numpy(force=True), expected, rtol=1e-7, atol=1e-7)
    assert gradcheck(function, (x, w, b)) and second_derivatives(function, (x, w, b))
    single = x.detach().float().requires_grad_()
    y = function(single, w.float(), b.float())
    assert y.dtype is tinytorch.float32
    np.testing.assert_allclose(y.numpy(force=True), expected, rtol=1e-3, atol=2e-3)


def test_groups_are_what_is_normalised_together(device):
    x = numbers(3, 6, 4, device=device)
    y = F.group_norm(x, 2).numpy(force=True).reshape(3, 2, 3, 4)
    expected = plain(x.numpy(force=True).reshape(3, 2, 3, 4), (2, 3), 1, 0)
    np.testing.assert_allclose(y, expected, atol=1e-9)


def test_rms_norm(device):
    x, w = numbers(3, 2, 4, device=device), numbers(4, device=device, seed=1)
    expected = plain(x.numpy(force=True), (2,), w.numpy(force=True), 0, 0.1, centered=False)
    y = F.rms_norm(x, (4,), w, eps=0.1)
    np.testing.assert_allclose(y.numpy(force=True), expected)
    for function in (lambda x, w: F.rms_norm(x, (4,), w), lambda x, w: F.rms_norm(x, (2, 4))):
        assert gradcheck(function, (x, w)) and gradgradcheck(function, (x, w))


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_weight_and_bias_may_be_absent(device, weight, bias):
    x = numbers(3, 4, 5, device=device)
    extra = [numbers(4, device=device, seed=1)] if weight else []
    extra += [numbers(4, device=device, seed=2)] if bias else []

    def group(x, *given):
        given = list(given)
        w, b = given.pop(0) if weight else None, given.pop(0) if bias else None
        return F.group_norm(x, 2, w, b)

    def layer(x, *given):
        given = list(given)
        w, b = given.pop(0) if weight else None, given.pop(0) if bias else None
        return F.layer_norm(x.transpose(1, 2), (4,), w, b)

    for function in (group, layer):
        assert gradcheck(function, (x, *extra)) and gradgradcheck(function, (x, *extra))


def test_running_averages(device):
    x = numbers(8, 3, 5, device=device)
    array = x.numpy(force=True)
    mean, var = (tinytorch.ones(3, dtype=tinytorch.float64, device=device) * k for k in (2, 3))
    F.batch_norm(x, mean, var, training=True, momentum=0.25)
    expected_mean = 0.75 * 2 + 0.25 * array.mean(axis=(0, 2))
    expected_var = 0.75 * 3 + 0.25 * array.var(axis=(0, 2), ddof=1)
    np.testing.assert_allclose(mean.numpy(force=True), expected_mean)
    np.testing.assert_allclose(var.numpy(force=True), expected_var)
    w, b = (numbers(3, device=device, seed=seed) for seed in (1, 2))

    def in_use(x, w, b):
        return F.batch_norm(x, mean, var, w, b)

    y = in_use(x, w, b).numpy(force=True)
    scale = w.numpy(force=True) / np.sqrt(expected_var + 1e-5)
    expected = (array - expected_mean[:, None]) * scale[:, None] + b.numpy(force=True)[:, None]
    np.testing.assert_allclose(y, expected)
    assert gradcheck(in_use, (x, w, b)) and second_derivatives(in_use, (x, w, b))


def test_averages_are_buffers_that_count_writes():
    layer = nn.BatchNorm1d(3)
    version = layer.running_mean._version
    layer(numbers(4, 3, dtype=tinytorch.float32))
    assert layer.running_mean._version == version + 1 and layer.num_batches_tracked.item() == 1
    assert list(layer.state_dict()) == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
    ]  # fmt: skip
    layer.eval()
    before = layer.running_mean.tolist()
    layer(numbers(4, 3, dtype=tinytorch.float32))
    assert layer.running_mean.tolist() == before and layer.num_batches_tracked.item() == 1


def test_momentum_none_is_the_mean_of_all_batches():
    layer = nn.BatchNorm2d(2, momentum=None)
    batches = [
        numbers(4, 2, 3, 3, seed=seed, dtype=tinytorch.float32).detach() for seed in range(5)
    ]
    for batch in batches:
        layer(batch)
    expected = np.mean([batch.numpy().mean(axis=(0, 2, 3)) for batch in batches], axis=0)
    np.testing.assert_allclose(layer.running_mean.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [tinytorch.float16, tinytorch.bfloat16])
def test_halves_are_computed_in_float32(dtype):
    pytest.importorskip("ml_dtypes")
    exact = numbers(64, 32, far=3.0, dtype=tinytorch.float32).detach()
    x = exact.to(dtype).requires_grad_()
    rounded = x.detach().float().requires_grad_()
    for weight in (tinytorch.ones(32), tinytorch.ones(32, dtype=dtype)):
        weight.requires_grad_()
        x.grad = rounded.grad = None
        y, z = F.layer_norm(x, (32,), weight), F.layer_norm(rounded, (32,))
        g = tensor(np.random.default_rng(1).normal(size=(64, 32))).to(dtype)
        y.backward(g)
        z.backward(g.float())
        assert y.dtype is x.grad.dtype is dtype and weight.grad.dtype is weight.dtype
        assert (y.float() - z.to(dtype).float()).abs().max().item() == 0
        assert (x.grad.float() - rounded.grad).abs().max().item() < 0.02


def test_node_names():
    x = numbers(4, 6, 3)
    names = [
        F.batch_norm(x, None, None, training=True),
        F.layer_norm(x, (3,)),
        F.group_norm(x, 2),
        F.rms_norm(x, (3,)),
        F.instance_norm(x),
    ]
    assert [y.grad_fn.name() for y in names] == [
        "NativeBatchNormBackward0", "NativeLayerNormBackward0", "NativeGroupNormBackward0",
        "MulBackward0", "ViewBackward0",
    ]  # fmt: skip


REFUSED = [
    (ValueError, lambda x: nn.BatchNorm1d(4)(x[:1, :, 0])),
    (ValueError, lambda x: nn.BatchNorm2d(4)(x)),
    (ValueError, lambda x: nn.InstanceNorm1d(4)(x[:, :, :1])),
    (ValueError, lambda x: nn.InstanceNorm1d(3, affine=True)(x)),
    (ValueError, lambda x: F.group_norm(x[:1, :1, :1], 1)),
    (ValueError, lambda x: F.batch_norm(x, None, None, training=True, eps=0.0)),
    (ValueError, lambda x: nn.GroupNorm(3, 4)),
    (RuntimeError, lambda x: F.batch_norm(x, None, None)),
    (RuntimeError, lambda x: F.batch_norm(x, None, None, x[0, 0], training=True)),
    (RuntimeError, lambda x: F.layer_norm(x, (4,))),
    (RuntimeError, lambda x: F.layer_norm(x, ())),
    (RuntimeError, lambda x: F.layer_norm(x, (5,), x[0, :1].double())),
    (RuntimeError, lambda x: nn.LayerNorm(5)(x.double())),
    (RuntimeError, lambda x: F.group_norm(x, 3)),
    (NotImplementedError, lambda x: F.rms_norm(x.long(), (5,))),
    (NotImplementedError, lambda x: F.batch_norm(x.long(), None, None, training=True)),
    (RuntimeError, lambda x: F.dropout1d(x.unsqueeze(0))),
    (ValueError, lambda x: F.dropout2d(x.unsqueeze(0), 2.0)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number):
    error, function = REFUSED[number]
    with pytest.raises(error):
        function(numbers(3, 4, 5, dtype=tinytorch.float32))


@pytest.mark.parametrize("layer, shape", [("Dropout1d", (50, 4, 3)), ("Dropout2d", (50, 4, 2, 3))])
def test_dropout_of_channels(device, layer, shape):
    module = getattr(nn, layer)(0.25)
    x = tinytorch.ones(*shape, device=device)
    y = module(x).numpy(force=True).reshape(50, 4, -1)
    assert (y == y[:, :, :1]).all()  # a channel is dropped as a whole
    assert np.unique(y).tolist() == [0.0, np.float32(1 / 0.75)]
    assert 0.15 < (y[:, :, 0] == 0).mean() < 0.35
    assert module.eval()(x) is x


def test_dropout_without_a_batch():
    assert set(F.dropout1d(tinytorch.ones(100, 3)).sum(1).tolist()) == {0.0, 6.0}
    assert set(F.dropout3d(tinytorch.ones(100, 1, 1, 3)).sum((1, 2, 3)).tolist()) == {0.0, 6.0}
    inside = tinytorch.ones(2, 100, 1, 1)
    assert F.dropout2d(inside, inplace=True) is inside and inside.sum().item() != 200
