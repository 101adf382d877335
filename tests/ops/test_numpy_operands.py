"""A NumPy array as the other operand, and shifts, on each device."""

import operator

import numpy as np
import pytest

import tinytorch


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow".split())
def test_a_numpy_array_counts_as_a_tensor(name):
    x = tinytorch.tensor([4.0, 5.0, 6.0], dtype=tinytorch.float64, requires_grad=True)
    array = np.array([1.5, 2.0, 3.0])
    result = getattr(operator, name)(x, array)
    assert isinstance(result, tinytorch.Tensor) and result.requires_grad
    expected = getattr(operator, name)(x, tinytorch.from_numpy(array))
    assert result.tolist() == expected.tolist() and result.dtype is expected.dtype


def test_a_boolean_array_is_refused_by_subtraction():
    with pytest.raises(RuntimeError, match="Subtraction"):
        tinytorch.tensor([1.0, 2.0]) - np.array([True, False])


def test_shifts(device):
    x = tinytorch.tensor([1, 2, 5], device=device)
    assert (x << 2).tolist() == [4, 8, 20] and (20 >> x).tolist() == [10, 5, 0]
    assert (2 << x).tolist() == [4, 8, 64] and (x >> x).tolist() == [0, 0, 0]
    x <<= 3
    assert x.tolist() == [8, 16, 40] and x.device.type == tinytorch.device(device).type
