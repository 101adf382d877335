"""Attention and MultiheadAttention, on each device; PyTorch is compared in tests/parity."""

import math

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.derivatives import second_derivatives
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.nn.modules.attention import Attention


def numbers(*shape, device="cpu", seed=0, grad=True):
    array = np.random.default_rng(seed).normal(size=shape)
    return tensor(array, device=device).requires_grad_(grad)


def three(shapes, device="cpu"):
    return [numbers(*shape, device=device, seed=seed) for seed, shape in enumerate(shapes)]


def plain(q, k, v, mask=None, scale=None):
    """The formula in NumPy; mask is added. A row that may look nowhere is 0."""
    q, k, v = (x.numpy(force=True) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        e = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    return e @ v / np.maximum(e.sum(-1, keepdims=True), 1e-300)


FOUR = [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7)]
SMALL = [(2, 3, 3, 2), (2, 3, 4, 2), (2, 3, 4, 5)]  # for checks of derivatives
ALLOWED = np.random.default_rng(9).random((3, 4)) > 0.4
ALLOWED[1] = False
MASKS = {
    "none": None,
    "bool": ALLOWED,
    "float": np.random.default_rng(8).normal(size=(2, 1, 3, 4)),
    "inf": np.where(ALLOWED, 0.0, -np.inf),
}


@pytest.mark.parametrize("scale", [None, 50.0])  # the second makes scores that exp cannot take
@pytest.mark.parametrize("name", MASKS)
def test_values_and_derivatives(device, name, scale):
    given, inputs = MASKS[name], three(SMALL, device)
    added = None if given is None else np.where(given, 0, -np.inf) if name == "bool" else given
    mask = None if given is None else tensor(given, device=device)
    y = F.scaled_dot_product_attention(*inputs, mask, scale=scale)
    np.testing.assert_allclose(y.numpy(force=True), plain(*inputs, added, scale), atol=1e-12)
    if scale is None:

        def function(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, mask)

        assert gradcheck(function, inputs) and second_derivatives(function, inputs)


@pytest.mark.parametrize("shapes", [SMALL, [(4, 5), (6, 5), (6, 7)], [(3, 4, 2), (2, 3, 4, 2)] * 2])
def test_causal(device, shapes):
    inputs = three([*shapes, shapes[-1]][:3], device)
    n, m = inputs[0].shape[-2], inputs[1].shape[-2]
    mask = np.where(np.tri(n, m), 0, -np.inf)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    y = function(*inputs).numpy(force=True)
    np.testing.assert_allclose(y, plain(*inputs, mask), atol=1e-12)
    assert gradcheck(function, inputs) and second_derivatives(function, inputs)


def test_the_gradient_of_a_mask(device):
    inputs, mask = three(SMALL, device), numbers(3, 4, device=device, seed=5)
    function = F.scaled_dot_product_attention
    assert gradcheck(function, (*inputs, mask)) and gradgradcheck(function, (*inputs, mask))


@pytest.mark.parametrize("is_causal", [True, False])
def test_blocks_change_nothing(monkeypatch, is_causal):
    """Also where the sizes are no multiples of those of a block."""

    def run():
        inputs = three([(5, 2, 70, 3), (5, 2, 90, 3), (5, 2, 90, 4)])
        mask = None if is_causal else numbers(70, 90, seed=7)
        y = F.scaled_dot_product_attention(*inputs, mask, is_causal=is_causal)
        y.square().sum().backward()
        return [y, *(x.grad for x in inputs), *([] if mask is None else [mask.grad])]

    whole = run()
    monkeypatch.setattr(Attention, "chunk", 2 * 2 * 70 * 90 * 8)
    monkeypatch.setattr(Attention, "causal_rows", 16)
    for one, other in zip(run(), whole, strict=True):
        np.testing.assert_allclose(one.numpy(force=True), other.numpy(force=True), atol=1e-12)


def test_grouped_heads(device):
    inputs = three([(2, 4, 3, 2), (2, 2, 5, 2), (2, 1, 5, 2)], device)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    repeated = [inputs[1].repeat_interleave(2, 1), inputs[2].repeat_interleave(4, 1)]
    expected = plain(inputs[0], *repeated)
    np.testing.assert_allclose(function(*inputs).numpy(force=True), expected, atol=1e-12)
    assert gradcheck(function, inputs) and second_derivatives(function, inputs)


@pytest.mark.parametrize("is_causal", [True, False])
def test_dropout_of_weights(device, is_causal):
    tinytorch.manual_seed(0)
    q, k = tinytorch.zeros(3000, 2, device=device), tinytorch.zeros(4, 2, device=device)
    v = tinytorch.eye(4, device=device).requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25, is_causal=is_causal)
    whole = y[10:].numpy(force=True)
    assert np.unique(whole.round(3)).tolist() == np.float32([0, 0.333]).tolist() or is_causal
    assert abs(whole.mean() - 0.25) < 0.01
    y.sum().backward()  # linear in v, so v * gradient adds up to the result
    np.testing.assert_allclose((v * v.grad).sum().item(), y.sum().item(), rtol=1e-4)
    zero = F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    assert zero.abs().max().item() == 0


@pytest.mark.parametrize("create_graph", [True, False])
def test_the_gradient_after_dropout(create_graph):
    def loss(q, k, v):
        tinytorch.manual_seed(4)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).square().sum()

    inputs = three(FOUR)
    grads = tinytorch.autograd.grad(loss(*inputs), inputs, create_graph=create_graph)
    for number, grad in enumerate(grads):
        step = tinytorch.zeros_like(inputs[number])
        step[1, 2, 3, 1] = 1e-6
        moved = [
            [x + sign * step if i == number else x for i, x in enumerate(inputs)]
            for sign in (1, -1)
        ]
        slope = (loss(*moved[0]) - loss(*moved[1])).item() / 2e-6
        assert math.isclose(slope, grad[1, 2, 3, 1].item(), rel_tol=1e-4, abs_tol=1e-6)


@pytest.mark.parametrize("dtype", [tinytorch.float16, tinytorch.bfloat16])
def test_halves_are_rounded_once(device, dtype):
    inputs = [x.detach().to(dtype) for x in three(FOUR, device)]
    y = F.scaled_dot_product_attention(*inputs)
    expected = F.scaled_dot_product_attention(*(x.float() for x in inputs)).to(dtype)
    assert y.dtype is dtype and (y == expected).all().item()
    assert (
        F.scaled_dot_product_attention(*inputs, tinytorch.zeros(4, 6, device=device)).dtype is dtype
    )


def test_one_node_and_nothing():
    q, k, v = three([(2, 4, 5), (2, 6, 5), (2, 6, 5)])
    y = F.scaled_dot_product_attention(q, k, v)
    assert y.grad_fn.name() == "ScaledDotProductFlashAttentionForCpuBackward0"
    for n, m in ((0, 6), (4, 0)):
        y = F.scaled_dot_product_attention(q[:, :n], k[:, :m], v[:, :m])
        assert y.shape == (2, n, 5) and y.abs().sum().item() == 0
        y.sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q[0, 0, 0], k, v),
        lambda q, k, v: (q.long(), k.long(), v.long()),
        lambda q, k, v: (q.float(), k, v),
        lambda q, k, v: (q, k[..., :3], v),
        lambda q, k, v: (q, k, v[..., :3, :]),
        lambda q, k, v: (q, k[..., :3, :], v),
        lambda q, k, v: (q, k[:, :2], v[:, :2]),
        lambda q, k, v: (q, k, v, tinytorch.ones(4, 5)),
        lambda q, k, v: (q, k, v, tinytorch.ones(4, 6).long()),
        lambda q, k, v: (q, k, v, tinytorch.ones(4, 6), 0.0, True),
        lambda q, k, v: (q, k, v, None, 1.5),
        lambda q, k, v: (q, k[:, :2], v[:, :2], None, 0.0, False, None, True),
    ],
)
def test_refused(change):
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(*change(*three(FOUR)))


# MultiheadAttention.


def layer_of(device="cpu", **options):
    tinytorch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, device=device, dtype=tinytorch.float64, **options)


@pytest.mark.parametrize("masks", ["none", "attn", "padding", "both", "heads"])
def test_with_weights_and_without(device, masks):
    layer, x = layer_of(device), numbers(5, 3, 8, device=device)
    attn = tinytorch.ones(5, 5, device=device).triu(1).bool() if masks in ("attn", "both") else None
    attn = numbers(6, 5, 5, device=device).detach() if masks == "heads" else attn
    padding = None
    if masks in ("padding", "both"):
        padding = tensor([[False] * 5, [False] * 4 + [True], [False] * 2 + [True] * 3])
        padding = padding.to(device)
    y, weights = layer(x, x, x, padding, attn_mask=attn)
    z, none = layer(x, x, x, padding, False, attn)
    np.testing.assert_allclose(y.numpy(force=True), z.numpy(force=True), atol=1e-12)
    np.testing.assert_allclose(weights.sum(-1).numpy(force=True), 1.0)
    assert weights.shape == (3, 5, 5) and none is None
    if padding is not None:
        assert weights[2, :, 2:].abs().max().item() == 0


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"kdim": 3, "vdim": 4}, {"batch_first": True}]
)
def test_derivatives_of_the_layer(device, options):
    layer = layer_of(device, add_bias_kv=True, add_zero_attn=True, **options)
    sizes = (8, options.get("kdim", 8), options.get("vdim", 8))
    inputs = three([(2, 3, size) for size in sizes], device)

    def function(*values):
        return layer(*values, need_weights=False)[0]

    assert gradcheck(function, inputs) and second_derivatives(function, inputs)


def test_a_single_sequence_and_the_batch_first():
    x = numbers(5, 3, 8)
    layer, first = layer_of(), layer_of(batch_first=True)
    y, weights = layer(x, x, x)
    z, same = first(*[x.transpose(0, 1)] * 3)
    np.testing.assert_allclose(y.transpose(0, 1).detach().numpy(), z.detach().numpy())
    np.testing.assert_allclose(weights.detach().numpy(), same.detach().numpy())
    one, found = layer(x[:, 1], x[:, 1], x[:, 1], tinytorch.zeros(5).bool())
    np.testing.assert_allclose(one.detach().numpy(), y[:, 1].detach().numpy())
    np.testing.assert_allclose(found.detach().numpy(), weights[1].detach().numpy())


def test_first_numbers_of_the_layer():
    tinytorch.manual_seed(0)
    layer = nn.MultiheadAttention(64, 4, add_bias_kv=True)
    weights = layer.in_proj_weight.detach().numpy()
    bound = math.sqrt(6 / (4 * 64))
    assert 0.99 * bound < abs(weights).max() <= bound
    assert not layer.in_proj_bias.any().item() and not layer.out_proj.bias.any().item()
    assert abs(layer.out_proj.weight).max().item() <= 1 / 8
    assert abs(layer.bias_k.std().item() - math.sqrt(2 / (64 + 64))) < 0.05


def test_dropout_only_in_training():
    layer, x = layer_of(dropout=0.5), numbers(5, 3, 8)
    for need_weights in (True, False):
        y = [
            layer.train(mode)(x, x, x, None, need_weights)[0] for mode in (True, True, False, False)
        ]
        assert not (y[0] == y[1]).all().item() and (y[2] == y[3]).all().item()


REFUSED = [
    (AssertionError, lambda layer, x: layer(x, x[0], x)),
    (AssertionError, lambda layer, x: layer(x[..., :6], x, x)),
    (AssertionError, lambda layer, x: layer(x, x, x[:4])),
    (AssertionError, lambda layer, x: layer(x, x, x, tinytorch.zeros(5).bool())),
    (AssertionError, lambda layer, x: layer(x, x, x, tinytorch.zeros(3, 5).long())),
    (RuntimeError, lambda layer, x: layer(x, x, x, attn_mask=tinytorch.zeros(4, 5))),
    (RuntimeError, lambda layer, x: layer(x, x, x, is_causal=True)),
    (ValueError, lambda layer, x: nn.MultiheadAttention(8, 0)),
    (AssertionError, lambda layer, x: nn.MultiheadAttention(8, 3)),
]


@pytest.mark.parametrize("error, call", REFUSED)
def test_the_layer_refuses(error, call):
    with pytest.raises(error):
        call(layer_of(), numbers(5, 3, 8))


def test_backends_that_a_program_allows(device):
    from tinytorch.nn.modules.attention import SDPBackend, sdpa_kernel

    q = tinytorch.randn(1, 2, 4, 8, device=device)
    expected = nn.functional.scaled_dot_product_attention(q, q, q)
    for allowed in (SDPBackend.MATH, [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        with sdpa_kernel(allowed, set_priority=True):
            assert tinytorch.equal(nn.functional.scaled_dot_product_attention(q, q, q), expected)
    for allowed in ([], SDPBackend.EFFICIENT_ATTENTION, SDPBackend.ERROR):
        with pytest.raises(RuntimeError, match="No viable backend"), sdpa_kernel(allowed):
            nn.functional.scaled_dot_product_attention(q, q, q)
    for wrong in ("math", [1], (SDPBackend.MATH,)):
        with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel(wrong):
            pass

    @sdpa_kernel(SDPBackend.CUDNN_ATTENTION)
    def decorated():
        return nn.functional.scaled_dot_product_attention(q, q, q)

    with pytest.raises(RuntimeError, match="CUDNN"):
        decorated()
    assert tinytorch.equal(nn.functional.scaled_dot_product_attention(q, q, q), expected)
