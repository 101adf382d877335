"""New tensors: shapes, types, values and errors; copy_ and fill_ with their gradients."""

import math

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import gradcheck, gradgradcheck


def test_filled(device):
    for create, value in ((tinytorch.zeros, 0.0), (tinytorch.ones, 1.0)):
        for x in (create(2, 3, device=device), create((2, 3), device=device)):
            assert x.shape == (2, 3) and x.dtype is tinytorch.float32
            assert x.tolist() == [[value] * 3] * 2 and str(x.device) == device
        assert create(0, 3).shape == (0, 3) and create(()).shape == ()
        assert create(2, dtype=tinytorch.int64).dtype is tinytorch.int64
        assert create(2, requires_grad=True).requires_grad
    assert tinytorch.empty(2, 3, device=device).shape == (2, 3)


def test_full_takes_the_type_of_its_value(device):
    for value, dtype in ((True, "bool"), (3, "int64"), (2.5, "float32")):
        assert tinytorch.full((2,), value, device=device).dtype.name == dtype
    assert tinytorch.full((2,), 1.5, dtype=tinytorch.int64).tolist() == [1, 1]
    assert tinytorch.full((1,), tinytorch.tensor(4)).tolist() == [4]


def test_like_another_tensor(device):
    x = tinytorch.tensor([[1, 2]], dtype=tinytorch.float64, device=device)
    likes = {
        "zeros": (tinytorch.zeros_like(x), x.new_zeros(1, 2)),
        "ones": (tinytorch.ones_like(x), x.new_ones((1, 2))),
        "full": (tinytorch.full_like(x, 7), x.new_full((1, 2), 7)),
        "empty": (tinytorch.empty_like(x), x.new_empty(1, 2)),
    }
    for name, pair in likes.items():
        for y in pair:
            assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device), name
            assert not y.requires_grad
    assert tinytorch.zeros_like(x, dtype=tinytorch.bool).dtype is tinytorch.bool
    assert x.new_tensor([1, 2]).dtype is tinytorch.float64


@pytest.mark.parametrize(
    "args, expected, dtype",
    [
        ((3,), [0, 1, 2], "int64"),
        ((1, 4), [1, 2, 3], "int64"),
        ((5, 0, -2), [5, 3, 1], "int64"),
        ((0, 1, 0.25), [0.0, 0.25, 0.5, 0.75], "float32"),
        ((3.0,), [0.0, 1.0, 2.0], "float32"),
        ((2, 2), [], "int64"),
        ((1, 2, 0.3), [1.0, 1.3, 1.6, 1.9], "float32"),
    ],
)
def test_arange(args, expected, dtype):
    x = tinytorch.arange(*args)
    assert x.dtype.name == dtype
    assert x.tolist() == pytest.approx(expected)


def test_arange_counts_integers_exactly():
    start = 2**53
    assert tinytorch.arange(start, start + 3).tolist() == [start, start + 1, start + 2]
    assert tinytorch.arange(0.5, 3.7, 1.9, dtype=tinytorch.int64).tolist() == [0, 1, 2]


def test_linspace_meets_both_ends(device):
    x = tinytorch.linspace(0.1, 0.7, 7, dtype=tinytorch.float64, device=device)
    assert x[0].item() == 0.1 and x[-1].item() == 0.7
    assert tinytorch.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert tinytorch.linspace(3, 9, 1).tolist() == [3.0] and tinytorch.linspace(3, 9, 0).shape == (
        0,
    )
    assert tinytorch.linspace(-3.7, 3.7, 4, dtype=tinytorch.int64).tolist() == [-3, -1, 1, 3]


def test_eye_and_meshgrid(device):
    assert tinytorch.eye(2, 3, device=device).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    a, b = tinytorch.tensor([1, 2], device=device), tinytorch.tensor([3, 4, 5], device=device)
    for indexing in ("ij", "xy"):
        found = tinytorch.meshgrid(a, b, indexing=indexing)
        expected = np.meshgrid([1, 2], [3, 4, 5], indexing=indexing)
        assert [x.tolist() for x in found] == [x.tolist() for x in expected]
    assert [x.shape for x in tinytorch.meshgrid([a])] == [(2,)]


def test_copy_and_fill(device):
    x = tinytorch.zeros(2, 3, device=device)
    assert x.copy_(tinytorch.tensor([1, 2, 3])) is x  # another type, another device, broadcast
    assert x.tolist() == [[1.0, 2.0, 3.0]] * 2 and x.dtype is tinytorch.float32
    assert x.fill_(2).tolist() == [[2.0] * 3] * 2
    assert x.fill_(tinytorch.tensor(0.5, device=device)).tolist() == [[0.5] * 3] * 2
    assert x.zero_().tolist() == [[0.0] * 3] * 2

    def copied(a, b):
        return (a * 1).copy_(b) * a

    a = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tinytorch.float64, device=device)
    b = tinytorch.tensor([5.0, 6.0], dtype=tinytorch.float64, device=device)
    inputs = (a.requires_grad_(), b.requires_grad_())
    assert gradcheck(copied, inputs) and gradgradcheck(copied, inputs)
    y = a * 2
    y[0].zero_()
    (g,) = tinytorch.autograd.grad(y.sum(), a)
    assert g.tolist() == [[0.0, 0.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    "error, call",
    [
        (RuntimeError, lambda: tinytorch.zeros(-1)),
        (TypeError, lambda: tinytorch.zeros(2.5)),
        (TypeError, lambda: tinytorch.full((2,), "a")),
        (RuntimeError, lambda: tinytorch.eye(-1)),
        (RuntimeError, lambda: tinytorch.arange(0, 1, 0)),
        (RuntimeError, lambda: tinytorch.arange(1, 0, 1)),
        (RuntimeError, lambda: tinytorch.arange(0, float("inf"))),
        (RuntimeError, lambda: tinytorch.linspace(0, 1, -1)),
        (TypeError, lambda: tinytorch.linspace(0, 1, 3.0)),
        (RuntimeError, lambda: tinytorch.meshgrid(tinytorch.ones(2, 2))),
        (RuntimeError, lambda: tinytorch.meshgrid(tinytorch.ones(2), indexing="yx")),
        (RuntimeError, lambda: tinytorch.zeros(2).copy_(tinytorch.zeros(3))),
        (RuntimeError, lambda: tinytorch.zeros(2).fill_(tinytorch.zeros(2))),
        (RuntimeError, lambda: tinytorch.ones(2, requires_grad=True).zero_()),
        (RuntimeError, lambda: tinytorch.zeros(2, dtype=tinytorch.int64, requires_grad=True)),
    ],
)
def test_errors(error, call):
    with pytest.raises(error):
        call()


def test_a_number_fits_its_type_or_is_refused():
    assert tinytorch.full((2,), 2.7, dtype=tinytorch.int32).tolist() == [2, 2]
    assert tinytorch.full((), -9, dtype=tinytorch.uint8).item() == 247
    assert tinytorch.full((), -128, dtype=tinytorch.int8).item() == -128
    assert tinytorch.full((), float("inf"), dtype=tinytorch.float16).item() == float("inf")
    for value, dtype in ((300, "uint8"), (128, "int8"), (1e6, "float16"), (float("nan"), "int64")):
        dtype = getattr(tinytorch, dtype)
        with pytest.raises(RuntimeError, match="without overflow"):
            tinytorch.full((2,), value, dtype=dtype)
        with pytest.raises(RuntimeError, match="without overflow"):
            tinytorch.zeros(2, dtype=dtype).fill_(value)


def test_arange_of_integers_between_fractions(device):
    x = tinytorch.arange(-0.9, 2.1, 2.0, dtype=tinytorch.int8, device=device)
    assert x.tolist() == [0, 2] and x.dtype is tinytorch.int8 and x.device.type == device


def test_size_by_name_and_constants():
    assert tinytorch.zeros(size=(2, 3)).shape == (2, 3)
    assert tinytorch.ones(2).new_ones(size=[1]).tolist() == [1.0]
    assert (tinytorch.pi, tinytorch.e, tinytorch.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(tinytorch.nan) and tinytorch.ones(2)[:, tinytorch.newaxis].shape == (2, 1)


def test_like_takes_a_memory_format(device):
    x = tinytorch.ones(2, 3, dtype=tinytorch.float64, device=device)
    for order in (None, tinytorch.preserve_format, tinytorch.contiguous_format):
        for make in (tinytorch.zeros_like, tinytorch.ones_like, tinytorch.empty_like):
            made = make(x, memory_format=order, requires_grad=True)
            assert made.shape == x.shape and made.dtype is x.dtype and made.device == x.device
            assert made.requires_grad and made.is_contiguous()
        assert tinytorch.full_like(x, 7, memory_format=order).tolist() == [[7.0] * 3] * 2
