"""ops/gather.py: gather and scatter, masks, repetitions."""

import numpy as np
import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


MASK = np.array([[True, False, True], [False, False, True]])
# name: (operation on x and further tensors, the same in NumPy or None, shapes of the float inputs)
I23 = np.array([[0, 1, 1], [1, 0, 1]])
I22 = np.array([[2, 0], [1, 1]])


def scattered(x, index, src, add):
    out = x.copy()
    for i, j in np.ndindex(index.shape):
        out[i, index[i, j]] = src[i, j] + (out[i, index[i, j]] if add else 0)
    return out


CASES = {
    "gather 0": (
        lambda d, x: x.gather(0, d(I23)),
        lambda x: np.take_along_axis(x, I23, 0),
        [(2, 3)],
    ),
    "gather 1": (
        lambda d, x: x.gather(-1, d(I22)),
        lambda x: np.take_along_axis(x, I22, 1),
        [(2, 3)],
    ),
    "gather part": (lambda d, x: x.gather(1, d(I22[:1])), lambda x: x[:1, [2, 0]], [(2, 3)]),
    "gather 0-d": (lambda d, x: x.gather(0, d([0, 0])), lambda x: x[None][[0, 0]], [()]),
    "gather nothing": (
        lambda d, x: x.gather(1, d(np.zeros((2, 0), np.int64))),
        lambda x: x[:, :0],
        [(2, 3)],
    ),
    "index_select": (
        lambda d, x: x.index_select(1, d([2, 0, 2])),
        lambda x: x[:, [2, 0, 2]],
        [(2, 3)],
    ),
    "index_select of T": (
        lambda d, x: x.T.index_select(0, d([2, 2])),
        lambda x: x.T[[2, 2]],
        [(2, 3)],
    ),
    "index_select int32": (
        lambda d, x: x.index_select(0, d(np.array([1], np.int32))),
        lambda x: x[[1]],
        [(2, 3)],
    ),
    "scatter": (
        lambda d, x, s: x.scatter(1, d(np.array([[2, 0], [1, 2]])), s),
        lambda x, s: scattered(x, np.array([[2, 0], [1, 2]]), s, False),
        [(2, 3), (2, 4)],
    ),
    "scatter a number": (
        lambda d, x: x.scatter(1, d(I22), 2.5),
        lambda x: scattered(x, I22, np.full((2, 2), 2.5), False),
        [(2, 3)],
    ),
    "scatter_add": (
        lambda d, x, s: x.scatter_add(1, d(I22), s),
        lambda x, s: scattered(x, I22, s, True),
        [(2, 3), (2, 3)],
    ),
    "scatter_add 0-d": (
        lambda d, x, s: x.scatter_add(0, d([0]), s),
        lambda x, s: x + s[0],
        [(), (1,)],
    ),
    "index_add": (
        lambda d, x, s: x.index_add(1, d([0, 0]), s, alpha=2),
        lambda x, s: x + 2 * s.sum(1, keepdims=True) * [1, 0, 0],
        [(2, 3), (2, 2)],
    ),
    "masked_fill": (
        lambda d, x: x.masked_fill(d(MASK), -1.5),
        lambda x: np.where(MASK, -1.5, x),
        [(2, 3)],
    ),
    "masked_fill broadcast": (
        lambda d, x, v: x.masked_fill(d(MASK), v),
        lambda x, v: np.where(MASK, v, x),
        [(3,), ()],
    ),
    "masked_select": (lambda d, x: x.masked_select(d(MASK)), lambda x: x[MASK], [(2, 3)]),
    "masked_select broadcast": (
        lambda d, x: x.masked_select(d(MASK[:1])),
        lambda x: x[:, MASK[0]].reshape(-1),
        [(2, 3)],
    ),
    "masked_select 0-d": (lambda d, x: x.masked_select(d(True)), lambda x: x[None], [()]),
    "repeat_interleave": (
        lambda d, x: x.repeat_interleave(2, 1),
        lambda x: x.repeat(2, 1),
        [(2, 3)],
    ),
    "repeat_interleave flat": (
        lambda d, x: x.repeat_interleave(d([0, 2, 1, 1, 0, 3])),
        lambda x: x.reshape(-1).repeat([0, 2, 1, 1, 0, 3]),
        [(2, 3)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_derivatives(name, device):
    ours, numpys, shapes = CASES[name]
    data = [values(*shape) for shape in shapes]
    x = [tensor(each, device=device, requires_grad=True) for each in data]

    def function(*inputs):
        return ours(lambda index: tensor(index, device=device), *inputs)

    result, expected = function(*x), numpys(*data)
    assert result.shape == expected.shape
    assert np.allclose(result.numpy(force=True), expected)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


IN_PLACE = {
    "masked_fill_": lambda d, x, s: x.masked_fill_(d(MASK), 2.0),
    "scatter_": lambda d, x, s: x.scatter_(1, d(I22), s),
    "scatter_add_": lambda d, x, s: x.scatter_add_(1, d(I22), s),
    "index_add_": lambda d, x, s: x.index_add_(0, d([1, 1]), s),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, device):
    x, s = (tensor(values(2, 3), device=device) for _ in range(2))

    def d(index):
        return tensor(index, device=device)

    class Outer:  # the same call without the underscore
        def __getattr__(self, method):
            return getattr(x, method.rstrip("_"))

    expected = IN_PLACE[name](d, Outer(), s)
    assert IN_PLACE[name](d, x, s) is x
    assert np.array_equal(x.numpy(force=True), expected.numpy(force=True)) and x._version == 1


def test_types_stay(device):
    for dtype in (tinytorch.float32, tinytorch.int64, tinytorch.bool, tinytorch.float16):
        x = tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype, device=device)
        index = tensor(I22, device=device)
        for out in (x.gather(1, index), x.scatter(1, index, 1), x.scatter_add(1, index, x)):
            assert out.dtype is dtype
        assert x.masked_fill(x.bool(), 1).dtype is dtype


ERRORS = {
    "gather dims": (lambda x, d: x.gather(0, d([0])), RuntimeError, "dimensions"),
    "gather range": (lambda x, d: x.gather(0, d([[2]])), RuntimeError, "out of bounds"),
    "gather negative": (lambda x, d: x.gather(0, d([[-1]])), RuntimeError, "out of bounds"),
    "gather type": (lambda x, d: x.gather(0, d([[0.0]])), RuntimeError, "int32/int64"),
    "gather size": (lambda x, d: x.gather(1, d([[0]] * 3)), RuntimeError, "no larger"),
    "scatter type": (lambda x, d: x.scatter(0, d([[0]]), d([[1]])), RuntimeError, "float64"),
    "scatter size": (lambda x, d: x.scatter(0, d([[0, 1]]), x[:, :1]), RuntimeError, "no larger"),
    "select dims": (lambda x, d: x.index_select(0, d([[0]])), IndexError, "vector"),
    "select range": (lambda x, d: x.index_select(0, d([2])), IndexError, "out of bounds"),
    "index_add": (lambda x, d: x.index_add(0, d([0]), x), RuntimeError, "shape of source"),
    "fill mask": (lambda x, d: x.masked_fill(d([1, 0, 1]), 0.0), RuntimeError, "boolean"),
    "fill value": (lambda x, d: x.masked_fill(x > 0, x[0]), RuntimeError, "0-d"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor(values(2, 3), device=device), lambda data: tensor(data, device=device))
