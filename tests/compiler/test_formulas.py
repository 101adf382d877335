"""Plain formulas: what a traced graph gives is what eager gives, forward and backward."""

import numpy as np
import pytest

import tinytorch as tt
from tests.compiler.compare import compare, halves
from tinytorch import nn
from tinytorch.compiler.capture import Break, capture
from tinytorch.nn import functional as F


def uses(module):
    return [*module.parameters(), *module.buffers()]


def random(*shape, dtype=tt.float32, grad=True, scale=1.0):
    return (tt.randn(*shape, dtype=dtype) * scale).requires_grad_(grad)


MODULES = {
    "layer norm": (lambda: nn.LayerNorm(8), (4, 5, 8)),
    "layer norm over two": (lambda: nn.LayerNorm((5, 8)), (4, 5, 8)),
    "layer norm without weights": (lambda: nn.LayerNorm(8, elementwise_affine=False), (4, 8)),
    "rms norm": (lambda: nn.RMSNorm(8), (4, 5, 8)),
    "batch norm of a batch": (lambda: nn.BatchNorm1d(8), (4, 8)),
    "batch norm of rows": (lambda: nn.BatchNorm1d(8), (4, 8, 3)),
    "batch norm of images": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 6)),
    "batch norm without weights": (lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 5, 6)),
    "batch norm without state": (
        lambda: nn.BatchNorm2d(3, track_running_stats=False),
        (4, 3, 5, 6),
    ),
    "group norm": (lambda: nn.GroupNorm(2, 6), (4, 6, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), (4, 3, 5, 6)),
    "instance norm with state": (
        lambda: nn.InstanceNorm2d(3, track_running_stats=True),
        (4, 3, 5, 6),
    ),
    "gelu": (nn.GELU, (4, 5)),
    "gelu by tanh": (lambda: nn.GELU("tanh"), (4, 5)),
    "dropout": (lambda: nn.Dropout(0.3), (40, 5)),
}


@pytest.mark.parametrize("dtype", [tt.float32, tt.float64, tt.float16], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, training, dtype):
    make, shape = MODULES[name]
    tt.manual_seed(0)
    module = make().to(dtype).train(training)
    for parameter in module.parameters():
        parameter.data.normal_()
    compare(module, random(*shape, dtype=dtype), uses=uses(module))


POOLING = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max in a row": lambda x: F.max_pool1d(x[0], (3,)),
    "max with a stride": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max with gaps": lambda x: F.max_pool2d(x, 2, 2, dilation=2),
    "max and places": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "max of the inside": lambda x: F.max_pool2d(x, 4),
    "mean": lambda x: F.avg_pool2d(x, 2),
    "mean with padding": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 1),
}


@pytest.mark.parametrize("name", POOLING)
def test_pooling(name):
    compare(POOLING[name], random(2, 3, 6, 12))
    compare(POOLING[name], tt.zeros(2, 3, 6, 12).requires_grad_())  # the first of equal ones


def test_large_mean():
    # The variance is that of the deviations, not a difference of two large numbers.
    module = nn.LayerNorm(64, elementwise_affine=False)
    x = (tt.randn(8, 64, dtype=tt.float64) + 1e4).float()
    captured = capture(module, (x,), {}, [x, *module.parameters()])
    y = halves(captured)[0].run(np, [source.array for source in captured.sources])[0]
    np.testing.assert_allclose(y, module(x.double()).numpy(), atol=3e-3)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_class_losses(loss, weighted, scale, reduction):
    tt.manual_seed(0)
    x, target = random(6, 5, scale=scale), tt.tensor([0, 4, 2, 2, 1, 3])
    weight = tt.rand(5) if weighted else None
    compare(lambda x, t: loss(x, t, weight, reduction=reduction), x, target)


def test_class_losses_of_images_and_ignored_rows():
    x, target = random(2, 5, 3), tt.tensor([[0, 4, -100], [2, 1, 3]])
    compare(F.cross_entropy, x, target)
    compare(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x, target)
    known = target.clamp(min=0)
    compare(lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="none"), x, known)
    target = tt.tensor([[-100] * 3] * 2)
    compare(lambda x, t: F.cross_entropy(x, t, reduction="sum"), x, target)


def masks(kind):
    if kind == "bool":
        return tt.tensor([[True, False, True, True, False]] * 3 + [[False] * 5])
    return tt.tensor([[0.5, -np.inf, 0.0, 1.0, 0.0]] * 3 + [[-np.inf] * 5])


@pytest.mark.parametrize("kind", [None, "bool", "float", "causal", "dropout", "large"])
@pytest.mark.parametrize("dtype", [tt.float32, tt.float64, tt.float16], ids=str)
def test_attention(kind, dtype):
    tt.manual_seed(0)
    q, k, v = (random(2, 3, n, 8, dtype=dtype) for n in (4, 5, 5))
    if kind == "large":
        q = (q.detach() * 20).requires_grad_()
    mask = masks(kind) if kind in ("bool", "float") else None
    mask = mask if mask is None or mask.dtype is tt.bool else mask.to(dtype)

    def attend(q, k, v):
        p = 0.3 if kind == "dropout" else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, p, kind == "causal")

    compare(attend, q, k, v)


def test_gradient_of_a_mask():
    q, k, v = (random(2, n, 8) for n in (4, 5, 5))
    compare(F.scaled_dot_product_attention, q, k, v, random(4, 5))


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(need_weights):
    module = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
    mask = tt.triu(tt.ones(5, 5, dtype=tt.bool), 1)
    compare(
        lambda x: module(x, x, x, need_weights=need_weights, attn_mask=mask),
        random(2, 5, 8),
        uses=uses(module),
    )


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("function", ["softmax", "log_softmax", "logsumexp"])
def test_softmax(function, scale):
    compare(lambda x: getattr(x, function)(-1), random(4, 7, scale=scale))
    compare(lambda x: getattr(x, function)(0), random(40, 70, scale=scale))


def test_formulas_are_in_the_graph():
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    captured = compare(
        lambda x, t: F.cross_entropy(module(x), t),
        random(4, 8),
        tt.tensor([0, 1, 2, 0]),
        uses=uses(module),
    )
    assert not {node.op for node in captured.graph.nodes} & {"call", "put", "call_backward"}
    assert "erf" in [node.op for node in captured.graph.nodes]


def test_no_second_derivative():
    # What a formula saves is not a function of its inputs: better no gradient than a wrong one.
    x = random(3, 4)

    def penalty(x):
        (grad,) = tt.autograd.grad(F.layer_norm(x, (4,)).exp().sum(), x, create_graph=True)
        return (grad * grad).sum()

    with pytest.raises(Break, match="the gradient of"):
        capture(penalty, (x,), {}, [x])
