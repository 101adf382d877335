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
    for result in (x.sort(0), x.topk(1), x.sort(-1, True)):
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


def test_unique(device):
    x = tt.tensor([[3, 1], [1, 3], [3, 1]], device=device)
    assert x.unique().tolist() == [1, 3]
    found, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert inverse.tolist() == [[1, 0], [0, 1], [1, 0]] and counts.tolist() == [3, 3]
    rows, inverse = x.unique(dim=0, return_inverse=True)
    assert rows.tolist() == [[1, 3], [3, 1]] and inverse.tolist() == [1, 0, 1]
    assert tt.tensor([math.nan, math.nan]).unique().numel() == 2


def test_names_of_nodes_are_pytorchs():
    x = tt.tensor([3.0, 1.0, 2.0], requires_grad=True)
    assert x.sort().values.grad_fn.name() == "SortBackward0"
    assert x.topk(2).values.grad_fn.name() == "TopkBackward0"


def test_sums_of_weights_by_class(device):
    x = tt.tensor([3, 1, 3, 0], device=device)
    sums = x.bincount(tt.tensor([5.0, 2.0, 1.5, 4.0], device=device))
    assert sums.tolist() == [4.0, 2.0, 0.0, 6.5] and sums.dtype is tt.float32
    assert tt.bincount(x, weights=x == 3, minlength=5).tolist() == [0.0, 0.0, 0.0, 2.0, 0.0]
    with pytest.raises(RuntimeError, match=r"\[4\] of input, but have \[2\]"):
        x.bincount(x[:2])


def test_bincount(device):
    x = tt.tensor([0, 3, 3], device=device)
    assert x.bincount().tolist() == [1, 0, 0, 2] and x.bincount().dtype is tt.int64
    assert x.bincount(minlength=6).tolist() == [1, 0, 0, 2, 0, 0]
    for wrong, error in (([-1], RuntimeError), ([[1]], RuntimeError), ([0.5], NotImplementedError)):
        with pytest.raises(error):
            tt.tensor(wrong, device=device).bincount()


def test_refusals():
    x = tt.zeros(2, 3)
    for call in (
        lambda: x.topk(4),
        lambda: x.topk(-1),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: x.sort(2), lambda: x.argsort(-3)):
        with pytest.raises(IndexError):
            call()


@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_long_rows_sorts_only_what_it_returns(largest, device):
    array = np.random.default_rng(3).random((3, 500, 2))
    array[1, 7] = math.nan
    x = tt.tensor(array, device=device)
    order = x.argsort(1, descending=largest)
    for k in (1, 5, 250, 251, 500):  # up to half of a row by a partition
        result = x.topk(k, 1, largest)
        np.testing.assert_array_equal(values(result.indices), values(order)[:, :k])
    few = tt.tensor([2.0] * 4 + [1.0] * 1020 + [3.0], device=device).topk(5)
    first, *others = few.indices.tolist()  # equal ones may come in any order, as in PyTorch
    assert first == 1024 and sorted(others) == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 33])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted_and_bucketize_are_those_of_numpy(n, side, device):
    rng = np.random.default_rng(n)
    rows, x = np.sort(rng.integers(0, 9, (3, n)), 1), rng.integers(-1, 10, (3, 11))
    x = np.where(x == 5, np.nan, x)
    expected = [np.searchsorted(row, each, side) for row, each in zip(rows, x, strict=True)]
    ours = tt.tensor(rows, device=device).double(), tt.tensor(x, device=device)
    found = tt.searchsorted(*ours, side=side)
    assert found.dtype is tt.int64 and found.tolist() == np.array(expected).tolist()
    found = tt.bucketize(ours[1], ours[0][1], right=side == "right", out_int32=True)
    assert found.dtype is tt.int32
    assert found.tolist() == np.searchsorted(rows[1], x, side).tolist()
    order = rng.permutation(n)
    mixed = tt.tensor(rows[2][order], device=device)
    back = tt.tensor(np.argsort(order), device=device)
    found = tt.searchsorted(mixed, 4, sorter=back, side=side)
    assert found.item() == np.searchsorted(rows[2], 4, side)
