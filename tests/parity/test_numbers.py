"""Numbers as arguments, against PyTorch: what does not fit its type is refused, NumPy's numbers
count as Python's, and sizes that need more memory than there is are a RuntimeError."""

import math

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

OVERFLOW = """
L.tensor([100], dtype=L.int8).clamp(0, 300)
L.tensor([100], dtype=L.int8).clamp_(-300, 0)
L.tensor([100], dtype=L.int8).clamp_min(300)
L.tensor([100], dtype=L.int8).clamp(0, 300.)
L.tensor([100], dtype=L.int8).clamp(max=L.tensor(300))
L.tensor([100], dtype=L.uint8).clamp(-1, 5)
L.tensor([1.], dtype=L.float16).clamp(0, 1e9)
L.tensor([1e5]).clamp(0, 1e39)
L.zeros(2, dtype=L.int8).scatter(0, L.tensor([0]), 300)
L.zeros(2, dtype=L.uint8).scatter(0, L.tensor([0]), -1)
L.zeros(2, dtype=L.float16).scatter_(0, L.tensor([0]), 1e9)
F.pad(L.zeros(2, dtype=L.int8), (1, 1), value=300)
F.pad(L.zeros(2, dtype=L.uint8), (1, 1), value=-1)
F.pad(L.zeros(2, dtype=L.int64), (1, 1), value=1.5)
nn.ConstantPad1d(1, 300)(L.zeros(1, 2, dtype=L.int8))
L.linspace(0, 300, 3, dtype=L.int8)
L.linspace(-5, 10, 4, dtype=L.uint8)
L.linspace(0, 1e9, 3, dtype=L.float16)
L.linspace(0, nan, 3, dtype=L.int64)
L.arange(0, 3, 1, dtype=L.bool)
L.full((2,), -1, dtype=L.uint8)
L.full((2,), -300, dtype=L.uint8)
L.zeros(2, dtype=L.int8).new_full((2,), 300)
L.zeros(2, dtype=L.int8).fill_(300)
L.zeros(2, dtype=L.uint8).fill_(-1.)
L.zeros(2, dtype=L.int8).masked_fill(L.tensor([True, False]), 300)
L.zeros(2, dtype=L.int8).index_fill(0, L.tensor([0]), 300)
L.where(L.tensor([True, False]), L.zeros(2, dtype=L.int8), 300)
L.zeros(2, dtype=L.int8) + 300
L.ones(2, dtype=L.int8) * 300
L.ones(2, dtype=L.int8) < 300
L.ones(2, dtype=L.int8).add(1, alpha=300)
L.ones(2, dtype=L.int8).sub(L.ones(2, dtype=L.int8), alpha=300)
L.ones(2, dtype=L.uint8).add(L.ones(2, dtype=L.uint8), alpha=-1)
L.addcmul(L.ones(2, dtype=L.int8), L.ones(2, dtype=L.int8), L.ones(2, dtype=L.int8), value=300)
L.zeros(2, dtype=L.int8).index_add(0, L.tensor([0]), L.ones(1, dtype=L.int8), alpha=300)
L.tensor([2, 3], dtype=L.int8) ** 300
L.tensor([2, 3], dtype=L.uint8).pow(300)
L.tensor(2, dtype=L.int8).pow_(-129)
L.tensor([2, 3], dtype=L.uint8) ** -1
L.pow(L.tensor([2, 3], dtype=L.int32), 2**40)
L.tensor([2, 3], dtype=L.uint8) ** 255
L.tensor([2, 3], dtype=L.int8) ** True
L.tensor([2, 3], dtype=L.int8) ** 300.0
L.tensor([2, 3], dtype=L.int8) ** L.tensor(300)
L.tensor([True, False]) ** 300
300 ** L.tensor([2, 3], dtype=L.int8)
L.ones(2) ** 2**40
L.lerp(L.ones(2), L.ones(2), 1e39)
L.tensor([-1, 3], dtype=L.uint8)
L.tensor(-256, dtype=L.uint8)
L.tensor([300], dtype=L.int8)
L.ones(2).fill_(1j)
L.zeros(3, dtype=L.float16).uniform_(0, 1e9)
"""

NUMPY = """
L.arange(np.uint8(0), np.uint8(10), np.uint8(2))
L.arange(np.int8(-100), np.int8(100), np.int8(50))
L.arange(5, np.uint8(1), -1)
L.arange(False, 10, 2)
L.arange(L.tensor(True), 5)
L.linspace(np.uint8(5), np.uint8(1), 5)
L.linspace(np.int64(5), np.float32(1), np.uint8(5))
F.max_pool2d(L.ones(1, 1, 4, 4), np.int64(2), np.uint8(2), np.int8(1))
F.avg_pool2d(L.ones(1, 1, 4, 4), np.int64(2), np.int64(2), np.int64(1))
nn.MaxPool1d(np.int64(2), stride=np.int64(2))(L.ones(1, 1, 4))
nn.AvgPool1d(np.int64(2), stride=np.int64(2))(L.ones(1, 1, 4))
F.adaptive_avg_pool2d(L.ones(1, 1, 4, 4), (np.int64(2), None))
F.adaptive_max_pool2d(L.ones(1, 1, 4, 4), (0, 3))
F.adaptive_max_pool2d(L.ones(1, 1, 4, 4), (1, 0), True)[1]
F.adaptive_max_pool1d(L.ones(1, 1, 4), 0)
F.adaptive_max_pool3d(L.ones(1, 2, 4, 4, 4), (1, 0, 2))
F.adaptive_avg_pool2d(L.ones(1, 1, 4, 4), (0, 3))
nn.LayerNorm(np.int64(4))(L.ones(2, 4))
F.layer_norm(L.ones(2, 3), (3,), eps=np.float64(.1))
F.layer_norm(L.ones(2, 3), (3,), eps=L.tensor(.1))
nn.RMSNorm(np.int64(4))(L.ones(2, 4))
nn.GroupNorm(np.int64(2), np.int64(4))(L.ones(2, 4))
nn.TransformerEncoderLayer(np.int64(4), np.int64(2), np.int64(8)).eval()(L.ones(2, 3, 4)).shape
F.interpolate(L.ones(1, 1, 2, 2), np.int64(4))
F.interpolate(L.ones(1, 1, 2, 2), scale_factor=np.int64(2))
F.interpolate(L.ones(1, 1, 2, 2), scale_factor=np.float32(2))
nn.UpsamplingNearest2d(np.int64(4))(L.ones(1, 1, 2, 2))
nn.ZeroPad2d(np.int64(1))(L.ones(1, 2, 2))
nn.ReflectionPad1d(np.int64(1))(L.ones(1, 2, 2))
nn.CircularPad2d(np.int64(1))(L.ones(1, 2, 2))
F.conv2d(L.ones(1, 1, 4, 4), L.ones(1, 1, 2, 2), padding=np.uint8(200)).shape
F.conv2d(L.ones(1, 1, 4, 4), L.ones(1, 1, 2, 2), stride=np.uint8(200)).shape
F.conv1d(L.ones(1, 1, 400), L.ones(1, 1, 2), dilation=np.uint8(200), padding=np.int8(100)).shape
F.conv_transpose2d(L.ones(1, 1, 4, 4), L.ones(1, 1, 2, 2), stride=np.uint8(200)).shape
nn.Conv2d(np.uint8(200), np.uint8(200), np.uint8(3))(L.ones(1, 200, 4, 4)).shape
nn.Conv1d(np.uint8(200), np.uint8(2), np.uint8(3), padding=np.uint8(200))(L.ones(1, 200, 4)).shape
L.ones(600).unfold(0, np.uint8(200), np.uint8(200)).shape
F.unfold(L.ones(1, 1, 4, 4), np.uint8(2), stride=np.uint8(200), padding=np.uint8(200)).shape
F.pixel_shuffle(L.ones(1, 400, 2, 2), np.uint8(20)).shape
F.pixel_unshuffle(L.ones(1, 1, 40, 40), np.uint8(20)).shape
L.ones(4, 4).diagonal(np.uint8(1))
L.eye(np.int64(2), np.uint8(3))
L.tensor([2, 3], dtype=L.int8) ** np.int64(7)
L.tensor([2, 3], dtype=L.int8) ** np.int64(300)
"""

REFUSED = """
F.adaptive_avg_pool2d(L.ones(1, 1, 4, 4), 10**9)
F.adaptive_max_pool2d(L.ones(1, 1, 4, 4), 10**9)
L.eye(3, 2**40)
L.eye(2.)
L.linspace(0, 1, 2**40)
L.ones(2).repeat(2**40)
L.ones(2).repeat_interleave(2**62)
L.outer(L.ones(2**20), L.ones(2**20))
L.cdist(L.ones(2**20, 1), L.ones(2**20, 1))
L.ones(1).expand(2**40).contiguous()
L.ones(1).expand(2**40).cumsum(0)
F.pad(L.ones(2), (2**40, 0))
F.one_hot(L.tensor([0, 1]), 2**40)
F.one_hot(L.tensor([0, 1]), 2**63)
L.einsum([1.5], L.ones(2))
F.binary_cross_entropy(L.tensor([.5]), L.tensor([3.]))
F.binary_cross_entropy(L.tensor([.5]), L.tensor([nan]))
F.softplus(L.ones(2), 1, 1j)
nn.Threshold(1j, 1.)(L.ones(2))
F.elu(L.ones(2), 1j)
L.cdist(L.ones(2, 2), L.zeros(2, 2), nan)
L.ones(2).uniform_(nan, 1.)
L.ones(2).uniform_(0., inf)
L.ones(2).normal_(0., nan)
L.normal(0., nan, (2,))
L.ones(2).exponential_(nan)
F.kl_div(L.tensor([1, 2]), L.tensor([1, 2]), reduction='sum')
F.kl_div(L.tensor([1., 2]), L.tensor([1, 2]), reduction='sum')
F.conv2d(L.ones(1, 1, 4, 4), L.ones(1, 1, 2, 2), stride=1.5)
F.max_pool2d(L.ones(1, 1, 4, 4), "a")
F.pad(L.ones(2), (1.5, 1))
F.layer_norm(L.ones(2, 3), (3,), eps=1j)
F.layer_norm(L.ones(2, 3), (3,), eps="1e-5")
F.layer_norm(L.ones(2, 3), (3,), eps=[.1])
F.group_norm(L.ones(2, 4), 2, eps=1j)
F.rms_norm(L.ones(2, 3), (3,), eps=1j)
F.batch_norm(L.ones(2, 3), None, None, training=True, eps=1j)
nn.LayerNorm(3, eps=1j)(L.ones(2, 3))
"""


def outcome(library, call):
    """The elements, type and shape of what the call returns, or the kind of its error."""
    names = {"L": library, "F": library.nn.functional, "nn": library.nn, "np": np}
    try:
        value = eval(call, {**names, "nan": math.nan, "inf": math.inf})
    except Exception as error:
        return next(
            kind for kind in (RuntimeError, TypeError, ValueError) if isinstance(error, kind)
        )
    if isinstance(value, tuple):
        return tuple(value)
    return str(value.dtype).rpartition(".")[2], tuple(value.shape), value.detach().tolist()


@pytest.mark.parametrize(
    "call", (OVERFLOW + NUMPY + REFUSED).strip().replace("\n\n", "\n").split("\n")
)
def test_a_call_does_what_it_does_in_pytorch(call):
    assert outcome(tinytorch, call) == outcome(torch, call)


ACTIVATIONS = [(name, ()) for name in "leaky_relu elu softplus hardtanh relu mish".split()]
ACTIVATIONS += [(name, (math.inf,)) for name in "leaky_relu elu softplus".split()]


@pytest.mark.parametrize("name, option", ACTIVATIONS, ids=str)
def test_activations_at_the_ends_of_the_numbers(name, option):
    values = [2.0, -1.0, math.inf]
    if name in ("relu", "hardtanh"):
        values.append(math.nan)
    results = []
    for library in (tinytorch, torch):
        x = library.tensor(values, requires_grad=True)
        y = getattr(library.nn.functional, name)(x, *option)
        y[:2].sum().backward()
        slope = library.tensor(values, requires_grad=True)
        getattr(library.nn.functional, name)(slope, *option).sum().backward()
        results.append((y.tolist(), x.grad.tolist(), slope.grad.tolist()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["scatter", "index_copy"])
def test_a_written_0_d_tensor_gets_no_gradient(name):
    grads = []
    for library in (tinytorch, torch):
        x, source = (library.tensor(n, requires_grad=True) for n in (1.0, 3.0))
        (getattr(x, name)(0, library.tensor(0), source) * 2).exp().backward()
        grads.append([x.grad.item(), source.grad.item()])
    np.testing.assert_allclose(*grads, rtol=1e-6)
