"""Embedding and EmbeddingBag, on each device; PyTorch is compared in tests/parity."""

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def table(rows=5, width=3, device="cpu", seed=0):
    array = np.random.default_rng(seed).normal(size=(rows, width))
    return tensor(array, device=device, requires_grad=True)


def check(function, *inputs):
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


INDICES = {"0-d": 3, "1-d": [1, 1, 4], "2-d": [[0, 2], [2, 2]], "empty": []}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("dtype", [tinytorch.int64, tinytorch.int32])
def test_rows_and_their_gradients(device, name, dtype):
    weight, index = table(device=device), tensor(INDICES[name], device=device, dtype=dtype)
    y = F.embedding(index, weight)
    places, w = index.numpy(force=True), weight.numpy(force=True)
    np.testing.assert_array_equal(y.numpy(force=True), w[places])
    g = np.random.default_rng(1).normal(size=y.shape)
    y.backward(tensor(g, device=device))
    one_hot = places.reshape(-1, 1) == np.arange(5)
    np.testing.assert_allclose(weight.grad.numpy(force=True), one_hot.T @ g.reshape(-1, 3))
    check(lambda w: F.embedding(index, w) * F.embedding(index, w), weight)


def test_padding_and_frequency(device):
    weight, index = table(device=device), tensor([2, 0, 2, 2, 4], device=device)
    F.embedding(index, weight, padding_idx=0).sum().backward()
    assert weight.grad[:, 0].tolist() == [0, 0, 3, 0, 1]
    weight.grad = None
    F.embedding(index, weight, padding_idx=-1, scale_grad_by_freq=True).sum().backward()
    assert weight.grad[:, 1].tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_max_norm_shortens_the_rows_that_are_used(device, norm_type):
    weight = table(device=device)
    before = weight.numpy(force=True).copy()
    y = F.embedding(tensor([1, 3, 1], device=device), weight, max_norm=0.5, norm_type=norm_type)
    after = weight.numpy(force=True)
    np.testing.assert_array_equal(after[[0, 2, 4]], before[[0, 2, 4]])
    np.testing.assert_allclose(np.linalg.norm(after[[1, 3]], norm_type, axis=1), 0.5, rtol=1e-6)
    np.testing.assert_array_equal(y.numpy(force=True), after[[1, 3, 1]])


REFUSED = [
    (NotImplementedError, dict(sparse=True)),
    (AssertionError, dict(padding_idx=5)),
    (AssertionError, dict(padding_idx=-6)),
    (IndexError, dict(input=[5])),
    (IndexError, dict(input=[-1])),
    (RuntimeError, dict(input=[1.0])),
    (RuntimeError, dict(weight=[1.0, 2.0])),
]


@pytest.mark.parametrize("error, options", REFUSED, ids=str)
def test_what_is_refused(device, error, options):
    options = {"input": [1], "weight": [[1.0]] * 5, **options}
    for name in ("input", "weight"):
        options[name] = tensor(options[name], device=device)
    with pytest.raises(error):
        F.embedding(**options)


def test_module():
    tinytorch.manual_seed(0)
    layer = nn.Embedding(4, 3, padding_idx=-2, max_norm=2)
    assert layer.padding_idx == 2 and layer.weight[2].tolist() == [0, 0, 0]
    assert repr(layer) == "Embedding(4, 3, padding_idx=2, max_norm=2)"
    tinytorch.manual_seed(0)
    assert (tinytorch.randn(4, 3) == layer.weight).all(1).tolist() == [True, True, False, True]
    data = tinytorch.ones(2, 3)
    given = nn.Embedding.from_pretrained(data)
    assert not given.weight.requires_grad and given(tensor([1])).tolist() == [[1, 1, 1]]
    data[1] = 5  # the memory is shared
    assert given.weight[1, 0].item() == 5
    assert nn.EmbeddingBag.from_pretrained(data, freeze=False, mode="sum").weight.requires_grad
    assert nn.Embedding(2, 3, _freeze=True).weight.requires_grad is False
    with pytest.raises(AssertionError):
        nn.Embedding(2, 3, _weight=tinytorch.ones(3, 3))
    with pytest.raises(AssertionError):
        nn.Embedding.from_pretrained(tinytorch.ones(3))


BAGS = {
    "2-d": ([[0, 2, 2], [4, 1, 0]], None, False),
    "offsets": ([0, 2, 2, 4, 1, 0], [0, 2, 2, 5], False),
    "ends": ([0, 2, 2, 4, 1, 0], [0, 1, 6], True),
    "no words": ([], [0, 0], False),
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("name", BAGS)
def test_bags(device, name, padding_idx, mode):
    words, offsets, ends = BAGS[name]
    weight, index = table(device=device), tensor(words, device=device, dtype=tinytorch.int64)
    given = None if offsets is None else tensor(offsets, device=device)

    def bag(w):
        return F.embedding_bag(
            index, w, given, mode=mode, include_last_offset=ends, padding_idx=padding_idx
        )

    limits = [*(offsets or ()), *([] if ends else [len(words)])]
    bags = (
        words if offsets is None else [words[a:b] for a, b in zip(limits, limits[1:], strict=False)]
    )
    w, expected = weight.numpy(force=True), []
    for members in bags:
        rows = w[[word for word in members if word != padding_idx]]
        expected.append(getattr(rows, mode)(axis=0) if len(rows) else np.zeros(3))
    np.testing.assert_allclose(bag(weight).numpy(force=True), expected)
    check(bag, weight)


def test_weights_of_samples(device):
    weight, factors = table(device=device), tensor([2.0, 0.5, -1.0], device=device)
    factors = factors.double().requires_grad_()
    index, offsets = tensor([1, 1, 4], device=device), tensor([0, 2], device=device)
    y = F.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=factors)
    w = weight.numpy(force=True)
    np.testing.assert_allclose(y.numpy(force=True), [2.5 * w[1], -w[4]])
    check(
        lambda w, f: F.embedding_bag(index, w, offsets, mode="sum", per_sample_weights=f),
        weight,
        factors,
    )


BAGS_REFUSED = [
    (ValueError, dict(mode="min")),
    (ValueError, dict(offsets=None)),
    (ValueError, dict(input=[[1, 2]])),
    (ValueError, dict(offsets=[[0, 1]])),
    (ValueError, dict(mode="max", scale_grad_by_freq=True)),
    (ValueError, dict(per_sample_weights=[1.0])),
    (NotImplementedError, dict(per_sample_weights=[1.0, 2.0])),
    (NotImplementedError, dict(scale_grad_by_freq=True)),
    (NotImplementedError, dict(sparse=True)),
    (RuntimeError, dict(offsets=[1])),
    (RuntimeError, dict(offsets=[0, 3])),
    (IndexError, dict(input=[1, 9])),
]


@pytest.mark.parametrize("error, options", BAGS_REFUSED, ids=str)
def test_bags_that_are_refused(error, options):
    options = {"input": [1, 2], "offsets": [0], **options}
    options = {k: tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    with pytest.raises(error):
        F.embedding_bag(weight=table(), **options)


def test_bag_module():
    layer = nn.EmbeddingBag(4, 3, mode="max", padding_idx=1)
    assert repr(layer) == "EmbeddingBag(4, 3, mode='max', padding_idx=1)"
    assert layer(tensor([[0, 1], [1, 1]])).tolist() == [layer.weight[0].tolist(), [0, 0, 0]]
    summed = nn.EmbeddingBag.from_pretrained(layer.weight.detach(), mode="sum")
    y = summed(tensor([0, 2]), tensor([0]), per_sample_weights=tensor([1.0, 2.0]))
    np.testing.assert_allclose(y[0].numpy(), (layer.weight[0] + 2 * layer.weight[2]).tolist())
