"""Attention and the Transformer against PyTorch's, with the same parameters: outputs, weights,
gradients, state, the first numbers' order, errors."""

import itertools
import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


def pair(name, *args, **options):
    """The same module in both libraries, with the same parameters, in float64."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(tinytorch.nn, name)(*args, **options).double()
    state = {key: tinytorch.from_numpy(x.numpy().copy()) for key, x in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    assert str(ours.load_state_dict(state)) == "<All keys matched successfully>"
    back = {key: torch.from_numpy(x.numpy()) for key, x in ours.state_dict().items()}
    assert str(theirs.load_state_dict(back)) == "<All keys matched successfully>"
    assert repr(ours) == repr(theirs)
    return ours, theirs


def both(array, grad=False):
    if array is None:
        return None, None
    one, other = tinytorch.tensor(array), torch.tensor(array)
    return (one.requires_grad_(), other.requires_grad_()) if grad else (one, other)


def close(ours, theirs):
    assert (ours is None) == (theirs is None)
    if ours is not None:
        np.testing.assert_allclose(ours.numpy(force=True), theirs.numpy(force=True), atol=1e-9)


def compare(ours, theirs, arrays, **named):
    """Outputs, and the gradients of inputs and parameters."""
    inputs = [both(array, True) for array in arrays]
    keywords = {key: both(x) if isinstance(x, np.ndarray) else (x, x) for key, x in named.items()}
    found = ours(*(x for x, _ in inputs), **{key: x for key, (x, _) in keywords.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(*(x for _, x in inputs), **{key: x for key, (_, x) in keywords.items()})
    if isinstance(found, tuple):
        close(found[1], expected[1])
        found, expected = found[0], expected[0]
    close(found, expected)
    weights = np.random.default_rng(5).normal(size=expected.shape)
    (found * tinytorch.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    for one, other in inputs:
        close(one.grad, other.grad)
    for key, param in theirs.named_parameters():
        close(ours.get_parameter(key).grad, param.grad)


RNG = np.random.default_rng(0)
PADDING = np.array([[False] * 6, [False] * 4 + [True] * 2])
MASKS = {
    "none": {},
    "bool": {"attn_mask": RNG.random((5, 6)) > 0.7},
    "float": {"attn_mask": RNG.normal(size=(4, 5, 6))},
    "padding": {"key_padding_mask": PADDING},
    "both": {"attn_mask": RNG.normal(size=(5, 6)), "key_padding_mask": PADDING},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "batch_first": True}, {"kdim": 3, "vdim": 5}]
)
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_multihead_attention(options, extra, masks, need_weights):
    ours, theirs = pair("MultiheadAttention", 8, 2, **options, **extra)
    sizes = (8, options.get("kdim", 8), options.get("vdim", 8))
    arrays = [RNG.normal(size=(n, 2, size)) for n, size in zip((5, 6, 6), sizes, strict=True)]
    if "batch_first" in options:
        arrays = [array.swapaxes(0, 1).copy() for array in arrays]
    named = dict(MASKS[masks], need_weights=need_weights)
    if extra and need_weights:
        named["average_attn_weights"] = False
    compare(ours, theirs, arrays, **named)


def test_self_attention_and_the_causal_hint():
    ours, theirs = pair("MultiheadAttention", 8, 2)
    x = RNG.normal(size=(5, 2, 8))
    mask = np.triu(np.ones((5, 5), bool), 1)
    for named in ({}, {"attn_mask": mask}, {"attn_mask": mask, "is_causal": True}):
        one, other = both(x)
        pairs = [both(m) for m in named.values() if isinstance(m, np.ndarray)]
        options = {"need_weights": False, "is_causal": named.get("is_causal", False)}
        masks = [{"attn_mask": m} for m in pairs[0]] if pairs else [{}, {}]
        close(
            ours(one, one, one, **options, **masks[0])[0],
            theirs(other, other, other, **options, **masks[1])[0],
        )


STACKS = {"norm_first": (True, False), "batch_first": (True, False), "activation": ("relu", "gelu")}


@pytest.mark.parametrize(
    "options",
    [dict(zip(STACKS, v, strict=True)) for v in itertools.product(*STACKS.values())],
    ids=str,
)
def test_transformer(options):
    ours, theirs = pair("Transformer", 8, 2, 2, 2, 12, 0.0, **options)
    src, tgt = RNG.normal(size=(6, 2, 8)), RNG.normal(size=(5, 2, 8))
    if options["batch_first"]:
        src, tgt = src.swapaxes(0, 1).copy(), tgt.swapaxes(0, 1).copy()
    causal = np.triu(np.full((5, 5), -np.inf), 1)
    padding = np.where(PADDING, -np.inf, 0.0)
    compare(ours, theirs, [src, tgt])
    for pad in (PADDING, padding):
        compare(
            ours,
            theirs,
            [src, tgt],
            tgt_mask=causal,
            src_key_padding_mask=pad,
            memory_key_padding_mask=pad,
        )


@pytest.mark.parametrize("given", [True, False])
def test_scaled_dot_product_attention_options(given):
    q, k, v = (both(RNG.normal(size=(2, heads, 5, 8)), True) for heads in (6, 2, 2))
    mask = both(RNG.random((5, 5)) > 0.5 if given else None)
    one, other = (
        library.nn.functional.scaled_dot_product_attention(
            q[i], k[i], v[i], mask[i], scale=0.3, enable_gqa=True
        )
        for i, library in enumerate((tinytorch, torch))
    )
    close(one, other)
    one.square().sum().backward()
    other.square().sum().backward()
    for ours, theirs in (q, k, v):
        close(ours.grad, theirs.grad)


REFUSED = [
    lambda t: t.nn.MultiheadAttention(8, 0),
    lambda t: t.nn.MultiheadAttention(8, 3),
    lambda t: t.nn.MultiheadAttention(8, 2)(t.ones(3, 2, 8), t.ones(3, 8), t.ones(3, 2, 8)),
    lambda t: t.nn.MultiheadAttention(8, 2)(t.ones(8), t.ones(8), t.ones(8)),
    lambda t: t.nn.MultiheadAttention(8, 2)(t.ones(3, 2, 6), t.ones(3, 2, 8), t.ones(3, 2, 8)),
    lambda t: t.nn.MultiheadAttention(8, 2)(*[t.ones(3, 2, 8)] * 3, is_causal=True),
    lambda t: t.nn.MultiheadAttention(8, 2)(*[t.ones(3, 2, 8)] * 3, attn_mask=t.ones(2, 3)),
    lambda t: t.nn.MultiheadAttention(8, 2)(*[t.ones(3, 2, 8)] * 3, t.ones(3).bool()),
    lambda t: t.nn.MultiheadAttention(8, 2)(*[t.ones(3, 2, 8)] * 3, t.ones(2, 3).long()),
    lambda t: t.nn.TransformerEncoderLayer(8, 2, activation="tanh"),
    lambda t: t.nn.TransformerEncoderLayer(8, 3),
    lambda t: t.nn.Transformer(8, 2, 1, 1)(t.ones(3, 2, 8), t.ones(3, 1, 8)),
    lambda t: t.nn.Transformer(8, 2, 1, 1)(t.ones(3, 2, 8), t.ones(3, 2, 6)),
    lambda t: t.nn.functional.scaled_dot_product_attention(t.ones(8), t.ones(3, 8), t.ones(3, 8)),
    lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(3, 8).long()] * 3),
    lambda t: t.nn.functional.scaled_dot_product_attention(
        *[t.ones(3, 8)] * 2, t.ones(3, 8).double()
    ),
    lambda t: t.nn.functional.scaled_dot_product_attention(
        *[t.ones(3, 8)] * 3, t.ones(3, 3).long()
    ),
    lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(3, 8)] * 3, dropout_p=2.0),
    lambda t: t.nn.functional.scaled_dot_product_attention([1.0], t.ones(3, 8), t.ones(3, 8)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_with_the_same_error(number):
    with pytest.raises(Exception) as theirs:
        REFUSED[number](torch)
    with pytest.raises(theirs.type):
        REFUSED[number](tinytorch)
