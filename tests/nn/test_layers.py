"""Layers, activations, losses and dropout, on each device; PyTorch is compared in tests/parity."""

import math

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def numbers(*shape, device="cpu", seed=0, grad=True):
    array = np.random.default_rng(seed).normal(size=shape)
    return tensor(array, device=device).requires_grad_(grad)


def check(function, *inputs):
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 4, 3), (0, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(device, shape, bias):
    x, w = numbers(*shape, device=device), numbers(5, 3, device=device, seed=1)
    b = numbers(5, device=device, seed=2) if bias else None
    y = F.linear(x, w, b)
    expected = x.numpy(force=True) @ w.numpy(force=True).T
    expected = expected + b.numpy(force=True) if bias else expected
    np.testing.assert_allclose(y.numpy(force=True), expected)
    assert y.is_contiguous()  # whichever way the product was computed
    check(F.linear, x, w, *((b,) if bias else ()))


def test_linear_saves_one_node():
    layer = nn.Linear(3, 2)
    y = layer(tensor([[1.0, 2.0, 3.0]]))
    assert y.grad_fn.name() == "AddmmBackward0" and y.dtype is tinytorch.float32
    assert {node.__class__.__name__ for node, _ in y.grad_fn.next_functions if node} == {
        "AccumulateGrad"
    }


def test_shapes():
    x = tinytorch.zeros(2, 3, 4)
    assert nn.Flatten()(x).shape == (2, 12) and nn.Flatten(0, 1)(x).shape == (6, 4)
    assert nn.Identity("any", argument=1)(x) is x


def test_first_numbers_of_a_layer():
    tinytorch.manual_seed(0)
    layer = nn.Linear(400, 300)
    for param in (layer.weight, layer.bias):
        values = param.detach().numpy()
        assert abs(values).max() <= 1 / 20 and abs(values).max() > 0.048
        assert abs(values.std() - 1 / 20 / math.sqrt(3)) < 0.003
    assert nn.Linear(2, 3, bias=False).bias is None
    assert nn.Linear(2, 3, dtype=tinytorch.float64, device="cpu").weight.dtype is tinytorch.float64


@pytest.mark.parametrize("shape", [(), (0, 3), (70_000,), (3, 50, 500)])
def test_gelu_in_chunks(device, shape):
    x = np.random.default_rng(0).normal(0, 4, shape).astype(np.float32)
    exact = np.vectorize(lambda v: v * math.erfc(-v / math.sqrt(2)) / 2, otypes=[float])(x)
    density = np.exp(-(x.astype(float) ** 2) / 2) / math.sqrt(2 * math.pi)
    slope = np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2, otypes=[float])(x)
    slope += x * density
    given = tensor(x, device=device, requires_grad=True)
    if len(shape) == 3:  # not contiguous
        given = tensor(x.T.copy(), device=device, requires_grad=True).T
    y = F.gelu(given)
    np.testing.assert_allclose(y.numpy(force=True), exact, rtol=3e-6, atol=1e-6)
    (g,) = tinytorch.autograd.grad(y.sum(), given)
    np.testing.assert_allclose(g.numpy(force=True), slope, rtol=3e-6, atol=1e-6)


def test_gelu_of_extremes():
    x = np.array([-np.inf, -3e38, -100, -1e-40, -0.0, 1e-40, 100, 3e38, np.inf, np.nan], "f4")
    got = F.gelu(tensor(x)).numpy()
    assert np.isnan(got[[0, -1]]).all() and (got[1:3] == 0).all()  # -inf * 0, as in PyTorch
    np.testing.assert_array_equal(got[6:9], x[6:9])
    np.testing.assert_allclose(got[3:6], x[3:6] / 2, atol=2e-45)
    some = tensor(x[1:-2], requires_grad=True)
    F.gelu(some).sum().backward()
    np.testing.assert_allclose(some.grad.numpy(), [0, 0, 0.5, 0.5, 0.5, 1, 1], atol=1e-6)


CURVES = {
    "relu": lambda x: F.relu(x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": lambda x: F.silu(x),
    "softplus": lambda x: F.softplus(x, 2.0, 1.5),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "normalize": lambda x: F.normalize(x, dim=0),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
}


@pytest.mark.parametrize("name", CURVES)
def test_activations(device, name):
    curve = CURVES[name]
    check(curve, numbers(3, 4, device=device))
    far = tensor([-1000.0, -100.0, 0.0, 100.0, 1000.0], device=device, requires_grad=True)
    y = curve(far)
    y.sum().backward()
    assert y.dtype is tinytorch.float32 and far.grad.dtype is tinytorch.float32
    assert np.isfinite(far.grad.numpy(force=True)).all()
    assert curve(tinytorch.zeros(0, 2, device=device)).shape == (0, 2)
    assert curve(tensor([1.0], device=device).half()).dtype is tinytorch.float16


def test_prelu(device):
    x = numbers(3, 4, device=device)
    check(F.prelu, x, numbers(4, device=device, seed=1))
    check(F.prelu, x, numbers(1, device=device, seed=2))
    slopes = nn.PReLU(2, init=0.5, device=device)
    assert slopes(tensor([[-2.0, 3.0]], device=device)).tolist() == [[-1.0, 3.0]]
    with pytest.raises(RuntimeError):
        slopes(x.float())


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "silu"])
def test_activations_in_place(name):
    function = getattr(F, name)
    for values in ([-1.0, 2.0], [0.5, -3.0]):
        x, z = (tensor(values, requires_grad=True) for _ in range(2))
        inside = z * 2
        same = function(inside, inplace=True)
        (function(x * 2) * tensor([1.0, 3.0])).sum().backward()
        (same * tensor([1.0, 3.0])).sum().backward()
        assert same is inside and x.grad.tolist() == z.grad.tolist()
    with pytest.raises(RuntimeError, match="leaf"):
        function(x, inplace=True)


def test_options_are_attributes():
    layer = nn.LeakyReLU(0.2)
    assert layer.negative_slope == 0.2 and not layer.inplace
    layer.negative_slope = 0.5
    assert layer(tensor([-2.0])).item() == -1.0


# Losses.

LOSSES = {
    "mse_loss": lambda x, t: F.mse_loss(x, t),
    "l1_loss": lambda x, t: F.l1_loss(x, t, reduction="sum"),
    "smooth_l1_loss": lambda x, t: F.smooth_l1_loss(x, t, beta=0.5),
    "kl_div": lambda x, t: F.kl_div(x, t.exp(), reduction="batchmean"),
    "kl_div_log": lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True),
    "bce": lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.sigmoid()),
    "bce_logits": lambda x, t: F.binary_cross_entropy_with_logits(
        x, t.sigmoid(), pos_weight=tinytorch.full((4,), 2.5, device=x.device).double()
    ),
    "huber_loss": lambda x, t: F.huber_loss(x, t, delta=0.5),
    "cosine_similarity": lambda x, t: F.cosine_similarity(x, t),
    "cross_entropy": lambda x, t: F.cross_entropy(x, t.softmax(1), label_smoothing=0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(device, name):
    check(LOSSES[name], numbers(3, 4, device=device), numbers(3, 4, device=device, seed=1))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [-100, 1, 77])
def test_cross_entropy(device, reduction, smoothing, weighted, ignore):
    x = numbers(5, 3, device=device)
    classes = [0, 2, 1, 77 if ignore == 77 else 1, 2]
    target = tensor(classes, device=device)
    weight = tensor([1.0, 2.0, 0.5], device=device).double() if weighted else None

    def loss(x):
        options = {"ignore_index": ignore, "reduction": reduction, "label_smoothing": smoothing}
        return F.cross_entropy(x, target, weight, **options)

    check(loss, x)
    logs = x.log_softmax(1).numpy(force=True)
    w = weight.numpy(force=True) if weighted else np.ones(3)
    rows = []
    for log, c in zip(logs, classes, strict=True):
        truth = smoothing / 3 + (1 - smoothing) * (np.arange(3) == c)
        rows.append(-(w * truth * log).sum() if c != ignore else 0.0)
    counts = [w[c] if c != ignore else 0.0 for c in classes]
    expected = {"none": rows, "sum": sum(rows), "mean": sum(rows) / sum(counts)}[reduction]
    np.testing.assert_allclose(loss(x).numpy(force=True), expected)
    if not smoothing:
        nll = F.nll_loss(x.log_softmax(1), target, weight, ignore_index=ignore, reduction=reduction)
        np.testing.assert_allclose(nll.numpy(force=True), expected)


def test_stable_where_numbers_are_large(device):
    x = tensor([[1000.0, 0.0, -1000.0]], device=device, requires_grad=True)
    loss = F.cross_entropy(x, tensor([0], device=device))
    loss.backward()
    assert (loss.item(), x.grad.tolist(), loss.dtype) == (0.0, [[0.0, 0.0, 0.0]], tinytorch.float32)
    assert F.cross_entropy(x, tensor([2], device=device)).item() == 2000.0
    x = tensor([100.0, -100.0], device=device, requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(
        x, tensor([1.0, 1.0], device=device), reduction="none"
    )
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.0, 100.0]) and x.grad.tolist() == [0.0, -1.0]
    x = tensor([0.0, 1.0], device=device, requires_grad=True)
    F.binary_cross_entropy(x, tensor([1.0, 1.0], device=device)).backward()
    assert np.isfinite(x.grad.numpy(force=True)).all()


def test_an_ignored_row_does_no_harm():
    x = tensor([[0.0, 1.0], [float("-inf"), 0.0]], requires_grad=True)
    loss = F.cross_entropy(x, tensor([1, 0]), ignore_index=0)
    loss.backward()
    assert math.isfinite(loss.item()) and np.isfinite(x.grad.numpy()).all()


def test_a_loss_warns_of_broadcasting():
    with pytest.warns(UserWarning, match="different to the input size"):
        F.mse_loss(tinytorch.zeros(3, 1), tinytorch.zeros(3))


def test_weights_are_buffers():
    loss = nn.CrossEntropyLoss(weight=tensor([1.0, 2.0]), label_smoothing=0.1)
    assert list(loss.state_dict()) == ["weight"] and repr(loss) == "CrossEntropyLoss()"
    assert loss.double().weight.dtype is tinytorch.float64 and loss.label_smoothing == 0.1


def test_one_hot(device):
    y = F.one_hot(tensor([[0, 2]], device=device), 4)
    assert (y.tolist(), y.dtype) == ([[[1, 0, 0, 0], [0, 0, 1, 0]]], tinytorch.int64)
    assert F.one_hot(tensor([1, 2], device=device)).shape == (2, 3)


# Dropout.


def test_dropout(device):
    tinytorch.manual_seed(0)
    x = tinytorch.ones(100, 100, device=device, requires_grad=True)
    y = F.dropout(x, 0.3)
    kept = y.numpy(force=True) > 0
    assert abs(kept.mean() - 0.7) < 0.02
    np.testing.assert_allclose(y.numpy(force=True)[kept], 1 / 0.7, rtol=1e-6)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert F.dropout(x, 0.3, training=False) is x and F.dropout(x, 0.0) is x
    assert F.dropout(x, 1.0).sum().item() == 0.0
    layer = nn.Dropout(0.5)
    assert layer.eval()(x) is x and layer.train()(x) is not x
    layer.p = 0.25
    assert repr(layer) == "Dropout(p=0.25, inplace=False)"


class Noisy(nn.Linear):
    """A layer with a parameter of its own, as noisy networks and low-rank adapters have it."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.sigma = nn.Parameter(tinytorch.full(tuple(self.weight.shape), 0.5))
        self.reset_parameters()


class NoisyConv(nn.Conv1d):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.sigma = nn.Parameter(tinytorch.full((2,), 0.5))
        self.reset_parameters()


@pytest.mark.parametrize("layer", [Noisy(3, 2), Noisy(3, 2, bias=False), NoisyConv(2, 3, 1)])
def test_reset_parameters_leaves_the_parameters_of_a_subclass(layer):
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    assert (layer.sigma == 0.5).all() and not (layer.weight == before).any()
