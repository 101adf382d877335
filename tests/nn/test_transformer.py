"""The Transformer's modules, on each device; PyTorch is compared in tests/parity."""

import numpy as np
import pytest

import tinytorch
from tests.derivatives import second_derivatives
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck
from tinytorch.nn.modules.transformer import is_causal_mask

LAYER = {"d_model": 4, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0}


def numbers(*shape, device="cpu", seed=0):
    array = np.random.default_rng(seed).normal(size=shape)
    return tensor(array, device=device).requires_grad_()


def double(device):
    return {"device": device, "dtype": tinytorch.float64}


@pytest.mark.parametrize("norm_first", [True, False])
def test_derivatives(device, norm_first):
    tinytorch.manual_seed(0)
    how = {**LAYER, "norm_first": norm_first, "activation": "gelu", **double(device)}
    x, memory = numbers(3, 2, 4, device=device), numbers(2, 2, 4, device=device, seed=1)
    encoder, decoder = nn.TransformerEncoderLayer(**how), nn.TransformerDecoderLayer(**how)
    assert gradcheck(encoder, (x,)) and second_derivatives(encoder, (x,))
    assert gradcheck(decoder, (x, memory)) and second_derivatives(decoder, (x, memory))


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_layer_is_its_parts(norm_first):
    tinytorch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(**LAYER, norm_first=norm_first).double()
    x = numbers(3, 2, 4)
    attention = lambda x: layer.self_attn(x, x, x)[0]  # noqa: E731
    network = lambda x: layer.linear2(layer.linear1(x).relu())  # noqa: E731
    if norm_first:
        y = x + attention(layer.norm1(x))
        y = y + network(layer.norm2(y))
    else:
        y = layer.norm1(x + attention(x))
        y = layer.norm2(y + network(y))
    np.testing.assert_allclose(layer(x).detach().numpy(), y.detach().numpy(), atol=1e-12)


def test_masks_reach_the_attention(device):
    tinytorch.manual_seed(0)
    net = nn.Transformer(4, 2, 2, 2, 6, 0.0, **double(device)).eval()
    src, tgt = numbers(5, 2, 4, device=device), numbers(3, 2, 4, device=device, seed=1)
    causal = nn.Transformer.generate_square_subsequent_mask(3, **double(device))
    padding = tensor([[False] * 5, [False] * 3 + [True] * 2], device=device)
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    y = net(src, tgt, tgt_mask=causal, **masks)
    one, other = tinytorch.autograd.grad(y[1, 1].square().sum(), [tgt, src])
    assert one[2].abs().max().item() == 0 and one[0, 1].abs().max().item() > 0
    assert other[3:].abs().max().item() == 0 and other[:3, 1].abs().max().item() > 0
    for how in ({"tgt_is_causal": True}, {"tgt_is_causal": False}):
        z = net(src, tgt, tgt_mask=causal, **masks, **how)
        np.testing.assert_allclose(z.numpy(force=True), y.numpy(force=True), atol=1e-12)


def test_a_causal_mask_is_recognised(device):
    mask = nn.Transformer.generate_square_subsequent_mask(4, device=device)
    assert mask.dtype is tinytorch.float32 and str(mask.device) == device
    upper = tinytorch.ones(4, 4, device=device).triu(1).bool()
    assert [is_causal_mask(m, None) for m in (mask, upper, mask.double())] == [True] * 3
    others = (mask[:3], mask.T, ~upper, tinytorch.ones(2, 4, 4, device=device).bool(), None)
    assert [is_causal_mask(m, None) for m in others] == [False] * 5
    assert is_causal_mask(None, True) and not is_causal_mask(mask, False)


def test_copies_and_parameters():
    layer = nn.TransformerEncoderLayer(**LAYER)
    encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(4), enable_nested_tensor=False)
    first, second = (encoder.layers[i].linear1.weight for i in (0, 1))
    assert first is not second and (first == second).all().item()
    assert len(list(encoder.parameters())) == 3 * len(list(layer.parameters())) + 2
    tinytorch.manual_seed(0)
    net = nn.Transformer(4, 2, 2, 2, 6)
    first, second = (net.encoder.layers[i].linear1.weight for i in (0, 1))
    assert not (first == second).any().item()
    assert abs(first).max().item() <= (6 / 10) ** 0.5


def test_dropout_everywhere():
    tinytorch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.5)
    x = tinytorch.randn(3, 2, 8)
    assert not (layer(x, x) == layer(x, x)).all().item()
    layer.eval()
    assert (layer(x, x) == layer(x, x)).all().item()
    assert [m.p for m in layer.modules() if isinstance(m, nn.Dropout)] == [0.5] * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda net, x: nn.TransformerEncoderLayer(4, 2, activation="tanh"),
        lambda net, x: net(x, x[:, :1]),
        lambda net, x: net(x, x[..., :3]),
    ],
)
def test_refused(call):
    with pytest.raises(RuntimeError):
        call(nn.Transformer(4, 2, 1, 1, 6), tinytorch.randn(3, 2, 4))


def test_it_learns_to_reverse():
    """The milestone of step transformer07, smaller: four digits, written backwards."""
    tinytorch.manual_seed(0)
    words, places, head = nn.Embedding(7, 16), nn.Embedding(4, 16), nn.Linear(16, 7)
    body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True, norm_first=True)
    net = nn.ModuleList([words, places, head, body])
    optimizer = tinytorch.optim.Adam(net.parameters(), lr=0.01)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    where = places(tinytorch.arange(4))
    for _ in range(120):
        read = tinytorch.randint(0, 6, (32, 4))
        wanted = read.flip(1)
        given = tinytorch.cat([tinytorch.full((32, 1), 6), wanted[:, :-1]], 1)
        where = places(tinytorch.arange(4))
        logits = head(body(words(read) + where, words(given) + where, tgt_mask=mask))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
