"""Sorting and what follows from it: order, ties, nan, gradients, refusals."""

import math

import numpy as np
import pytest

import tinytorch as tt
from tinytorch.autograd import gradcheck, gradgradcheck

X = np.random.default_rng(0).permutation(24).reshape(2, 3, 4) / 4.0
TIES = [3.0, 1.0, math.nan, 3.0, 1.0, 2.0]


def values(tensor):
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort(dim, descending, device):
    x = tt.tensor(X, device=device, requires_grad=True)
    result = x.sort(dim, descending)
    want = np.sort(X, axis=dim)
    want = np.flip(want, dim) if descending else want
    np.testing.assert_array_equal(values(result.values), want)
    np.testing.assert_array_equal(np.take_along_axis(X, values(result.indices), dim), want)
    assert result.indices.dtype is tt.int64
    np.testing.assert_array_equal(values(x.argsort(dim, descending)), values(result.indices))
    assert gradcheck(lambda x: x.sort(dim, descending).values, x)
    assert gradgradcheck(lambda x: x.sort(dim, descending).values, x)


def test_equal_elements_keep_their_order_and_nan_is_the_largest(device):
    x = tt.tensor(TIES, device=device)
    assert x.argsort().tolist() == [1, 4, 5, 0, 3, 2]
    assert x.argsort(descending=True).tolist() == [2, 0, 3, 5, 1, 4]


@pytest.mark.parametrize("dtype", [tt.int32, tt.uint8, tt.bool])
def test_sort_other_types(dtype):
    x = tt.tensor([1, 0, 1], dtype=dtype)
    assert x.sort(descending=True).indices.tolist() == [0, 2, 1]
    assert x.sort().values.dtype is dtype


def test_zero_dimensions_and_nothing():
    x = tt.tensor(3.0, requires_grad=True)
    for result in (x.sort(0), x.topk(1), x.kthvalue(1), x.median(0), x.sort(-1, True)):
        assert result.values.item() == 3.0 and result.indices.item() == 0
    x.sort(0).values.backward()
    assert x.grad.item() == 1.0
    assert tt.zeros(0, 2).sort(0).values.shape == (0, 2)
    assert tt.zeros(3).topk(0).values.shape == (0,)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dim", [0, 2])
def test_topk(dim, largest, device):
    x = tt.tensor(X, device=device, requires_grad=True)
    result = x.topk(2, dim, largest)
    want = np.sort(X, axis=dim)
    want = np.flip(want, dim) if largest else want
    np.testing.assert_array_equal(values(result.values), np.take(want, [0, 1], axis=dim))
    assert gradcheck(lambda x: x.topk(2, dim, largest).values, x)
    assert gradgradcheck(lambda x: x.topk(2, dim, largest).values, x)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_kthvalue_and_median(dim, keepdim, device):
    x = tt.tensor(X, device=device, requires_grad=True)
    place = (X.shape[dim] - 1) // 2
    want = np.take(np.sort(X, axis=dim), [place], axis=dim)
    want = want if keepdim else want.squeeze(dim)
    for result in (x.median(dim, keepdim), x.kthvalue(place + 1, dim, keepdim)):
        np.testing.assert_array_equal(values(result.values), want)
        assert result.indices.shape == want.shape
    assert gradcheck(lambda x: x.median(dim, keepdim).values, x)
    assert gradgradcheck(lambda x: x.kthvalue(1, dim, keepdim).values, x)


def test_median_of_all(device):
    x = tt.tensor([4.0, 1.0, 3.0, 1.0], device=device, requires_grad=True)
    x.median().backward()
    assert x.median().item() == 1.0
    assert x.grad.tolist() == [0.0, 0.5, 0.0, 0.5]
    assert math.isnan(tt.tensor(TIES).median().item())
    result = tt.tensor([TIES]).median(1)
    assert math.isnan(result.values.item()) and result.indices.item() == 2


def test_unique(device):
    x = tt.tensor([[3, 1], [1, 3], [3, 1]], device=device)
    assert x.unique().tolist() == [1, 3]
    found, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert inverse.tolist() == [[1, 0], [0, 1], [1, 0]] and counts.tolist() == [3, 3]
    rows, inverse = x.unique(dim=0, return_inverse=True)
    assert rows.tolist() == [[1, 3], [3, 1]] and inverse.tolist() == [1, 0, 1]
    assert tt.tensor([math.nan, math.nan]).unique().numel() == 2


def test_bincount(device):
    x = tt.tensor([0, 3, 3], device=device)
    assert x.bincount().tolist() == [1, 0, 0, 2]
    assert x.bincount(minlength=6).tolist() == [1, 0, 0, 2, 0, 0]
    weighted = x.bincount(tt.tensor([0.5, 1.0, 2.0], device=device))
    assert weighted.tolist() == [0.5, 0.0, 0.0, 3.0] and weighted.dtype is tt.float32


def test_refusals():
    x = tt.zeros(2, 3)
    for call in (
        lambda: x.topk(4),
        lambda: x.topk(-1),
        lambda: x.kthvalue(0),
        lambda: x.kthvalue(4),
        lambda: tt.zeros(0).median(),
        lambda: tt.tensor([-1]).bincount(),
        lambda: tt.tensor([[1]]).bincount(),
        lambda: tt.tensor([1]).bincount(tt.zeros(2)),
        lambda: tt.zeros(3).bincount(),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: x.sort(2), lambda: x.argsort(-3), lambda: x.median(2)):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(IndexError):
        tt.zeros(0, 2).median(0)


@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_long_rows_sorts_only_what_it_returns(largest, device):
    array = np.random.default_rng(3).random((3, 50, 2))
    array[1, 7] = math.nan
    x = tt.tensor(array, device=device)
    order = x.argsort(1, descending=largest)
    result = x.topk(5, 1, largest)
    np.testing.assert_array_equal(values(result.indices), values(order)[:, :5])
    few = tt.tensor([2.0] * 4 + [1.0] * 20 + [3.0], device=device).topk(5)
    assert few.indices.tolist() == [24, 0, 1, 2, 3]


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_is_numpys_row_by_row(side, device):
    rng = np.random.default_rng(0)
    rows, values = np.sort(rng.integers(0, 9, (2, 3, 5)), axis=-1), rng.integers(-1, 10, (2, 3, 4))
    found = tt.searchsorted(
        tt.tensor(rows, device=device), tt.tensor(values, device=device), side=side
    )
    for i in np.ndindex(2, 3):
        assert found[i].tolist() == np.searchsorted(rows[i], values[i], side).tolist()
    row = tt.tensor([3.0, 1.0, 2.0], device=device)
    assert tt.searchsorted(row, 2.5, sorter=row.argsort()).item() == 2
    assert tt.bucketize(row, row.sort().values, right=True).tolist() == [3, 1, 2]


def test_searchsorted_refuses_what_does_not_fit():
    rows = tt.zeros(2, 3)
    for wrong in (
        lambda: tt.searchsorted(rows, 1.0),
        lambda: tt.searchsorted(rows, tt.zeros(3, 1)),
        lambda: tt.searchsorted(rows[0], 1.0, side="left", right=True),
        lambda: tt.bucketize(1.0, rows),
    ):
        with pytest.raises(RuntimeError):
            wrong()


def test_the_median_of_a_long_row(device):
    x = np.random.default_rng(0).permutation(200.0 * np.arange(2 * 101)).reshape(2, 101)
    values, indices = tt.tensor(x, device=device).median(1)
    assert values.tolist() == np.median(x, axis=1).tolist()
    assert x[[0, 1], indices.numpy(force=True)].tolist() == values.tolist()
    x[1, 7] = x[1, 9] = np.nan
    values, indices = tt.tensor(x, device=device).median(1, keepdim=True)
    assert np.isnan(values[1].item()) and indices[1].item() == 7 and not np.isnan(values[0].item())
