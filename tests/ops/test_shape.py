"""ops/shape.py: the same elements in another shape or order."""

import numpy as np
import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.ops.dims import normalize_dim, normalize_dims


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def diagonal(x, *place):
    return np.diagonal(x, *place)


# name: (our operation, NumPy's, shape of the input, whether it is a view)
CASES = {
    "reshape": (lambda x: x.reshape(3, -1), lambda x: x.reshape(3, -1), (2, 3, 2), True),
    "reshape to 0-d": (lambda x: x.reshape(()), lambda x: x.reshape(()), (1, 1), True),
    "reshape shape=": (lambda x: x.reshape(shape=[4]), lambda x: x.reshape(4), (2, 2), True),
    "reshape empty": (lambda x: x.reshape(0, 5), lambda x: x.reshape(0, 5), (2, 0), True),
    "reshape copies": (lambda x: x.T.reshape(6), lambda x: x.T.reshape(6), (2, 3), False),
    "view": (lambda x: x.view(-1), lambda x: x.reshape(-1), (2, 3), True),
    "view_as": (lambda x: x.view_as(x.T), lambda x: x.reshape(3, 2), (2, 3), True),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.swapaxes(0, 2), (2, 3, 4), True),
    "transpose 0-d": (lambda x: x.transpose(0, -1), lambda x: x, (), True),
    "T": (lambda x: x.T, lambda x: x.T, (2, 3), True),
    "T of 3-d": (lambda x: x.T, lambda x: x.T, (2, 3, 4), True),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(-1, -2), (2, 3, 4), True),
    "t": (lambda x: x.t(), lambda x: x.T, (2, 3), True),
    "permute": (lambda x: x.permute(2, 0, -2), lambda x: x.transpose(2, 0, 1), (2, 3, 4), True),
    "permute dims=": (lambda x: x.permute(dims=(1, 0)), lambda x: x.T, (2, 3), True),
    "movedim": (lambda x: x.movedim(0, -1), lambda x: np.moveaxis(x, 0, -1), (2, 3, 4), True),
    "movedim of two": (
        lambda x: x.movedim((0, 1), (2, 0)),
        lambda x: np.moveaxis(x, (0, 1), (2, 0)),
        (2, 3, 4),
        True,
    ),
    "squeeze": (lambda x: x.squeeze(), lambda x: x.squeeze(), (1, 3, 1), True),
    "squeeze dim": (lambda x: x.squeeze(-1), lambda x: x.squeeze(-1), (1, 3, 1), True),
    "squeeze a long dim": (lambda x: x.squeeze(1), lambda x: x, (1, 3, 1), True),
    "squeeze dims": (lambda x: x.squeeze((0, 1)), lambda x: x.squeeze(0), (1, 3, 1), True),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda x: x[..., None], (2, 3), True),
    "flatten": (lambda x: x.flatten(1), lambda x: x.reshape(2, -1), (2, 3, 4), True),
    "flatten 0-d": (lambda x: x.flatten(), lambda x: x.reshape(1), (), True),
    "unflatten": (
        lambda x: x.unflatten(1, (2, -1)),
        lambda x: x.reshape(2, 2, 3),
        (2, 6),
        True,
    ),
    "ravel": (lambda x: x.T.ravel(), lambda x: x.T.ravel(), (2, 3), False),
    "contiguous": (lambda x: x.T.contiguous(), lambda x: x.T, (2, 3), False),
    "select": (lambda x: x.select(-1, -2), lambda x: x[..., -2], (2, 3), True),
    "narrow": (lambda x: x.narrow(1, -2, 2), lambda x: x[:, 1:3], (2, 3), True),
    "diagonal": (lambda x: x.diagonal(), lambda x: diagonal(x), (3, 4), True),
    "diagonal above": (
        lambda x: x.diagonal(1, -2, -1),
        lambda x: diagonal(x, 1, 1, 2),
        (2, 3, 4),
        True,
    ),
    "diagonal below": (lambda x: x.diagonal(-1), lambda x: diagonal(x, -1), (3, 4), True),
    "diagonal outside": (lambda x: x.diagonal(9), lambda x: diagonal(x, 9), (3, 4), True),
    "repeat": (lambda x: x.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3)), (2, 3), False),
    "repeat once": (lambda x: x.repeat(1, 1), lambda x: x, (2, 3), False),
    "repeat never": (lambda x: x.repeat(0, 2), lambda x: np.tile(x, (0, 2)), (2, 3), False),
    "tile": (lambda x: x.tile(2), lambda x: np.tile(x, 2), (2, 3), False),
    "flip": (lambda x: x.flip(0, -1), lambda x: np.flip(x, (0, 1)), (2, 3), False),
    "roll": (lambda x: x.roll(2, 1), lambda x: np.roll(x, 2, 1), (2, 3), False),
    "roll all": (lambda x: x.roll(-1), lambda x: np.roll(x, -1), (2, 3), False),
    "roll two": (
        lambda x: x.roll((1, 2), (0, 1)),
        lambda x: np.roll(x, (1, 2), (0, 1)),
        (2, 3),
        False,
    ),
    "tril": (lambda x: x.tril(-1), lambda x: np.tril(x, -1), (2, 3, 3), False),
    "triu": (lambda x: x.triu(1), lambda x: np.triu(x, 1), (3, 4), False),
    "diag of a vector": (lambda x: x.diag(1), lambda x: np.diag(x, 1), (3,), False),
    "diag of a matrix": (lambda x: x.diag(-1), lambda x: np.diag(x, -1), (3, 4), False),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_derivatives(name, device):
    ours, numpys, shape, view = CASES[name]
    data = values(*shape)
    x = tensor(data, device=device, requires_grad=True)
    result = ours(x)
    expected = numpys(data)
    assert result.shape == expected.shape
    assert np.array_equal(result.numpy(force=True), expected)
    assert (result._base is x) == view
    assert gradcheck(ours, x)
    assert gradgradcheck(ours, x)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][3]])
def test_a_write_into_a_view_is_a_write_into_its_base(name, device):
    view_of, _, shape, _ = CASES[name]
    x = tensor(values(*shape), device=device)
    part = view_of(x)
    part.mul_(0.0)
    part.add_(7.0)
    assert bool((x.numpy(force=True) == 7.0).sum() == part.numel())
    assert x._version == 2


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][3]])
def test_the_gradient_knows_of_a_write_into_a_view(name, device):
    view_of, _, shape, _ = CASES[name]

    def function(x, y):
        base = x * 1.0
        view_of(base).add_(y * 2.0)
        return base * base

    inputs = [tensor(values(*s), device=device, requires_grad=True) for s in (shape, ())]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8", "float16"])
def test_the_type_stays(dtype, device):
    x = tensor(np.arange(6).reshape(2, 3), dtype=getattr(tinytorch, dtype), device=device)
    for name in ("reshape", "repeat", "flip", "roll", "tril", "diag of a matrix", "narrow"):
        assert CASES[name][0](x.reshape(CASES["narrow"][2])).dtype is x.dtype


ERRORS = {
    "too many elements": (lambda x: x.reshape(4), RuntimeError, r"'\[4\]' is invalid .* size 6"),
    "two unknown sizes": (lambda x: x.reshape(-1, -1), RuntimeError, "invalid"),
    "a size of -2": (lambda x: x.reshape(-2, 3), RuntimeError, "-2"),
    "a size of 2.0": (lambda x: x.reshape((2.0, 3)), TypeError, "integers"),
    "a view that needs a copy": (lambda x: x.T.view(6), RuntimeError, "not compatible"),
    "transpose": (lambda x: x.transpose(0, 5), IndexError, r"\[-2, 1\], but got 5"),
    "t of 3-d": (lambda x: x[None].t(), RuntimeError, "3D"),
    "mT of 1-d": (lambda x: x[0].mT, RuntimeError, "1-D"),
    "permute too few": (lambda x: x.permute(0), RuntimeError, "permute"),
    "permute twice": (lambda x: x.permute(0, 0), RuntimeError, "multiple times"),
    "movedim": (lambda x: x.movedim((0, 1), 0), RuntimeError, "movedim"),
    "squeeze": (lambda x: x.squeeze(2), IndexError, "but got 2"),
    "unsqueeze": (lambda x: x.unsqueeze(4), IndexError, r"\[-3, 2\], but got 4"),
    "flatten": (lambda x: x.flatten(1, 0), RuntimeError, "start_dim"),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), RuntimeError, "invalid"),
    "select": (lambda x: x.select(1, 3), IndexError, "index 3 .* size 3"),
    "narrow": (lambda x: x.narrow(0, 1, 2), RuntimeError, "exceeds"),
    "narrow start": (lambda x: x.narrow(0, 3, 1), IndexError, "start out of range"),
    "diagonal": (lambda x: x.diagonal(0, 1, -1), RuntimeError, "multiple times"),
    "diag": (lambda x: x[None].diag(), RuntimeError, "3D"),
    "repeat": (lambda x: x.repeat(2), RuntimeError, "repeat"),
    "flip": (lambda x: x.flip(0, 0), RuntimeError, "multiple times"),
    "roll": (lambda x: x.roll(1, (0, 1)), RuntimeError, "align"),
    "tril": (lambda x: x[0].tril(), RuntimeError, "at least 2"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor(values(2, 3), device=device))


def test_dims_are_counted_from_the_front():
    assert [normalize_dim(dim, 2) for dim in (-2, -1, 0, 1)] == [0, 1, 0, 1]
    assert [normalize_dim(dim, 0) for dim in (-1, 0)] == [0, 0]
    assert normalize_dims((0, -1), 3) == (0, 2)
    with pytest.raises(IndexError, match=r"\[-1, 0\], but got 1"):
        normalize_dim(1, 0)
    with pytest.raises(RuntimeError, match="multiple times"):
        normalize_dims((1, -1), 2)
    x = tinytorch.ones(2, 3)
    for wrong in (lambda: x.sum(True), lambda: x.softmax(True), lambda: x.transpose(True, 0)):
        with pytest.raises(TypeError):
            wrong()


def test_strides_and_contiguity(device):
    x = tensor(values(2, 3), device=device)
    assert x.stride() == (3, 1) and x.T.stride() == (1, 3) and x.T.stride(-1) == 3
    assert x.is_contiguous() and not x.T.is_contiguous()
    assert x.T.contiguous().stride() == (2, 1)
    assert x.contiguous() is x
    assert x[:, :1].T.is_contiguous() is False
    assert x[:1, 1:].is_contiguous() and x[0:0].T.is_contiguous()


def test_diag_embed_puts_rows_on_diagonals():
    x = tinytorch.ones(2, 3, dtype=tinytorch.float64, requires_grad=True)
    assert x.diag_embed(1).shape == (2, 4, 4)
    assert x.diag_embed(-1, 0, 2).diagonal(-1, 0, 2).equal(x)
    assert gradcheck(lambda x: x.diag_embed(1, 0, 1), x)
    with pytest.raises(RuntimeError):
        x.diag_embed(0, 1, 1)


def test_a_triangle_in_place():
    x = tinytorch.ones(2, 2)
    x.tril_()
    assert x.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_an_expanded_tensor_is_written_where_no_two_elements_share_a_place(device):
    x = tinytorch.zeros(3, device=device)
    y = x.expand(2, 3)
    y[0, 1] = 5
    y[1].add_(1)
    x.expand(1, 3).mul_(2)
    assert x.tolist() == [2, 12, 2] and y.stride() == (0, 1)
    for part in (y, y[:, 0], y[:, :2]):
        with pytest.raises(RuntimeError, match="more than one element"):
            part.add_(1)
    transposed = tinytorch.zeros(3, 2, device=device).T
    transposed.expand(1, 2, 3)[0, 1].fill_(4)
    assert transposed.tolist() == [[0, 0, 0], [4, 4, 4]]
    x = tensor([1.0, 2.0], requires_grad=True, device=device)
    z = x * 1
    z.expand(3, 2)[1].mul_(x)
    z.sum().backward()
    assert z.tolist() == [1, 4] and x.grad.tolist() == [2, 4]
    assert tinytorch.ones(2, 1, device=device).expand(-1, 0).shape == (2, 0)


def test_integers_of_numpy_name_dimensions_and_sizes(device):
    one, x = np.int64(1), tinytorch.arange(6.0, device=device).reshape(2, 3)
    assert x.sum(one).tolist() == x.sum((one,)).tolist() == [3.0, 12.0]
    assert x.softmax(one).shape == (2, 3) and x.prod(one).tolist() == [0.0, 60.0]
    assert x.all(one).tolist() == [False, True]
    assert x.reshape(np.int64(6)).shape == x.view(np.int64(-1)).shape == (6,)
    assert [part.shape for part in x.chunk(np.int64(2), one)] == [(2, 2), (2, 1)]
    for refused in (1.0, "1", None):
        with pytest.raises(TypeError):
            x.softmax(refused)


def test_permute_needs_an_order(device):
    number = tinytorch.tensor(1.0, device=device)
    assert number.permute(()).shape == ()
    for x in (number, number.reshape(1, 1)):
        with pytest.raises(TypeError, match="dims"):
            x.permute()
