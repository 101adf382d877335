"""Operations made of others, and elements by their rank, against NumPy's formulas."""

import math

import numpy as np
import pytest

import tinytorch


def drawn(device, *shape, seed=0):
    return tinytorch.tensor(np.random.default_rng(seed).standard_normal(shape), device=device)


def close(tensor, expected):
    np.testing.assert_allclose(tensor.detach().cpu().numpy(), expected, rtol=1e-6)


def test_products(device):
    a, b = drawn(device, 2, 3, 4), drawn(device, 4, 3, 5, seed=1)
    x, y = a.cpu().numpy(), b.cpu().numpy()
    close(tinytorch.tensordot(a, b, ([1, 2], [1, 0])), np.tensordot(x, y, ([1, 2], [1, 0])))
    close(tinytorch.tensordot(a[:, 0], b, 1), np.tensordot(x[:, 0], y, 1))
    close(tinytorch.cross(a, a.flip(0), 1), np.cross(x, x[::-1], axis=1))
    product = tinytorch.baddbmm(a[:, :1], a.mT, a, beta=2, alpha=3)
    close(product, 2 * x[:, :1] + 3 * x.swapaxes(1, 2) @ x)


def test_tensordot_takes_dimensions_in_pairs():
    x = tinytorch.ones(2, 3)
    with pytest.raises(RuntimeError, match="pairs"):
        tinytorch.tensordot(x, x, ([0, 1], [0]))


def test_logarithms_of_sums_do_not_overflow(device):
    a = tinytorch.tensor([1000.0, -1000.0, -math.inf, math.inf, 0.5], device=device)
    close(tinytorch.logaddexp(a, a), np.logaddexp(*[a.cpu().numpy()] * 2))
    x = tinytorch.tensor([-math.inf, 3.0], device=device, requires_grad=True)
    tinytorch.logaddexp(x, x.detach()).sum().backward()
    assert x.grad[1].item() == 0.5


def test_unknown_elements(device):
    a = tinytorch.tensor([[1.0, math.nan], [3.0, 5.0]], device=device, requires_grad=True)
    tinytorch.nanmean(a, 0).sum().backward()
    assert a.grad.tolist() == [[0.5, 0.0], [0.5, 1.0]]
    assert tinytorch.nansum(a).item() == 9


def test_slices_and_places(device):
    a = drawn(device, 3, 4)
    assert a.index_fill(1, tinytorch.tensor([0, -1 + 4], device=device), 7.0)[:, [0, 3]].eq(7).all()
    order = a.argsort(0, descending=True)
    close(tinytorch.take_along_dim(a, order, 0), -np.sort(-a.cpu().numpy(), 0))
    mask = tinytorch.tensor([[True], [False], [True]], device=device)
    filled = a.masked_scatter(mask, tinytorch.arange(20.0, dtype=a.dtype, device=device))
    assert filled[0].tolist() == [0, 1, 2, 3] and filled[2].tolist() == [4, 5, 6, 7]
    close(a.diff(n=2, dim=0), np.diff(a.cpu().numpy(), 2, 0))


@pytest.mark.parametrize("way", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(device, way):
    a = drawn(device, 4, 6)
    q = tinytorch.tensor([0.1, 0.5, 0.8], dtype=a.dtype, device=device)
    expected = np.quantile(a.cpu().numpy(), [0.1, 0.5, 0.8], axis=1, method=way)
    close(tinytorch.quantile(a, q, 1, interpolation=way), expected)


def test_medians(device):
    a = drawn(device, 5, 7).requires_grad_()
    values, indices = a.median(1)
    close(values, np.median(a.detach().cpu().numpy(), 1))
    assert a.gather(1, indices[:, None])[:, 0].eq(values).all()
    a.median().backward()
    assert a.grad.sum().item() == 1 == a.grad.count_nonzero().item()


def test_results_in_memory_that_is_given(device):
    a, b = drawn(device, 2, 3), drawn(device, 2, 3, seed=1)
    for name in ("maximum", "minimum", "div", "mm"):
        other = b.T.contiguous() if name == "mm" else b
        expected = getattr(tinytorch, name)(a, other)
        out = tinytorch.empty_like(expected)
        assert getattr(tinytorch, name)(a, other, out=out) is out and out.equal(expected)
    assert tinytorch.rsqrt(a.abs(), out=b) is b and b.equal(a.abs().rsqrt())
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        tinytorch.exp(a.requires_grad_(), out=b)


def test_a_factor_that_is_a_tensor(device):
    x = tinytorch.ones(3, device=device)
    x.data.add_(tinytorch.ones(3, device=device), alpha=-tinytorch.tensor(0.5, device=device))
    assert x.tolist() == [0.5] * 3
    x.sub_(tinytorch.ones(3, device=device), alpha=tinytorch.tensor(2))
    assert x.tolist() == [-1.5] * 3


def test_masks_of_bytes(device):
    mask = tinytorch.tensor([0, 2, 1], dtype=tinytorch.uint8, device=device)
    assert tinytorch.where(mask, tinytorch.ones(3, device=device), 0.0).tolist() == [0, 1, 1]
