"""Sums, means, extremes, norms, softmax, running sums and products: values, gradients, refusals."""

import math
import warnings

import numpy as np
import pytest

import tinytorch as tt
from tinytorch.autograd import gradcheck, gradgradcheck

F64 = np.random.default_rng(0).uniform(0.5, 2.0, (2, 3, 4)) * np.sign(
    np.random.default_rng(1).normal(size=(2, 3, 4))
)


def np_logsumexp(x, axis=None, keepdims=False):
    return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


def np_norm(p):
    def norm(x, axis=None, keepdims=False):
        return (np.abs(x) ** p).sum(axis=axis, keepdims=keepdims) ** (1 / p)

    return norm


# name -> (ours, NumPy's), each taking the dims and keepdim.
REDUCTIONS = {
    "sum": (lambda x, **k: x.sum(**k), np.sum),
    "mean": (lambda x, **k: x.mean(**k), np.mean),
    "var": (lambda x, **k: x.var(**k), lambda x, **k: np.var(x, ddof=1, **k)),
    "var, correction 0": (lambda x, **k: x.var(correction=0, **k), np.var),
    "std": (lambda x, **k: x.std(**k), lambda x, **k: np.std(x, ddof=1, **k)),
    "amax": (lambda x, **k: x.amax(**k), np.max),
    "amin": (lambda x, **k: x.amin(**k), np.min),
    "norm": (lambda x, **k: x.norm(**k), np_norm(2)),
    "norm 1": (lambda x, **k: x.norm(p=1, **k), np_norm(1)),
    "norm 3": (lambda x, **k: x.norm(p=3, **k), np_norm(3)),
    "norm 0.5": (lambda x, **k: x.norm(p=0.5, **k), np_norm(0.5)),
    "norm inf": (lambda x, **k: x.norm(p=math.inf, **k), lambda x, **k: np.max(np.abs(x), **k)),
    "norm -inf": (lambda x, **k: x.norm(p=-math.inf, **k), lambda x, **k: np.min(np.abs(x), **k)),
    "logsumexp": (lambda x, dim=(0, 1, 2), **k: x.logsumexp(dim=dim, **k), np_logsumexp),
}
DIMS = [None, 0, -1, (0, 2), (-1, 0, 1)]


def values(tensor):
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_value(name, dim, keepdim, device):
    ours, numpys = REDUCTIONS[name]
    arguments = {} if dim is None else {"dim": dim}
    for array in (F64, F64.astype(np.float32), F64.T):
        x = tt.tensor(array, device=device)
        x = x.permute(2, 1, 0).permute(2, 1, 0)  # its memory is in another order than its shape
        got = ours(x, keepdim=keepdim, **arguments)
        want = numpys(array, axis=dim, keepdims=keepdim)
        assert got.shape == np.shape(want)
        assert got.dtype is x.dtype
        rtol = 1e-5 if array.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(values(got), want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradient(name, dim):
    ours, _ = REDUCTIONS[name]
    arguments = {} if dim is None else {"dim": dim}
    x = tt.tensor(F64, requires_grad=True)
    assert gradcheck(lambda x: ours(x, **arguments), x)
    assert gradgradcheck(lambda x: ours(x, **arguments), x)
    assert gradcheck(lambda x: ours(x.permute(2, 0, 1), keepdim=True, **arguments), x)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradient_stays_on_its_device(name, device):
    x = tt.tensor(F64, device=device, requires_grad=True)
    assert gradcheck(lambda x: REDUCTIONS[name][0](x, dim=1), x)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_zero_dimensions(name):
    ours, numpys = REDUCTIONS[name]
    x = tt.tensor(1.5, dtype=tt.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy: degrees of freedom <= 0
        want = numpys(np.array(1.5))
    for arguments in ({"dim": 0}, {"dim": -1, "keepdim": True}):
        got = ours(x, **arguments)
        assert got.shape == ()
        np.testing.assert_allclose(values(got), want)
    if not name.startswith(("var", "std")):
        assert gradcheck(lambda x: ours(x, dim=0), x)


def test_numpy_names_for_the_arguments():
    x = tt.tensor(F64)
    assert x.sum(axis=0, keepdims=True).shape == (1, 3, 4)
    assert x.max(axis=1).values.shape == (2, 4)


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum"])
def test_integers_are_added_as_int64(name):
    dim = (0,) if name == "cumsum" else ()
    for dtype in (tt.bool, tt.uint8, tt.int32):
        x = tt.tensor([1, 1, 1], dtype=dtype)
        assert getattr(x, name)(*dim).dtype is tt.int64
        assert getattr(x, name)(*dim, dtype=tt.float32).dtype is tt.float32
    assert tt.tensor([200, 100], dtype=tt.uint8).sum().item() == 300
    assert tt.tensor([2, 3], dtype=tt.int64).sum(dtype=tt.bool).item() is True


@pytest.mark.parametrize("dtype", [tt.float16, tt.bfloat16])
def test_half_precision_is_added_in_float32(dtype):
    pytest.importorskip("ml_dtypes")
    x = tt.tensor(np.full(5000, 0.1, np.float32)).to(dtype)
    exact = float(x[0].float()) * 5000
    for got in (x.sum(), x.reshape(5000, 1).sum(0)[0], x.cumsum(0)[-1]):
        assert got.dtype is dtype
        assert abs(float(got.float()) - exact) < 0.005 * exact  # adding in halves stops at 256
    assert float(x.mean().float()) == float(x[0].float())
    assert x.softmax(0).dtype is x.norm().dtype is x.var().dtype is dtype


def test_long_rows_of_float32_keep_their_digits():
    x = np.random.default_rng(0).random((300, 1000), dtype=np.float32)
    want = x.astype(np.float64).sum(-1)
    for keepdim in (False, True):
        got = tt.tensor(x).sum(-1, keepdim)
        np.testing.assert_allclose(values(got).reshape(-1), want, rtol=1e-6)


EMPTY = {
    "sum": [0.0, 0.0],
    "prod": [1.0, 1.0],
    "mean": [math.nan, math.nan],
    "var": [math.nan, math.nan],
    "norm": [0.0, 0.0],
    "logsumexp": [-math.inf, -math.inf],
    "all": [True, True],
    "any": [False, False],
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing(name, device):
    x = tt.zeros(0, 2, device=device)
    np.testing.assert_array_equal(values(getattr(x, name)(dim=0)), EMPTY[name])


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "argmax", "argmin"])
def test_no_extreme_of_nothing(name):
    x = tt.zeros(0, 2)
    with pytest.raises(IndexError, match="non-zero size"):
        getattr(x, name)(dim=0)
    with pytest.raises(IndexError if name.startswith("arg") else RuntimeError, match="specified"):
        getattr(x, name)()
    result = getattr(x, name)(dim=1)
    assert (result.values if name in ("max", "min") else result).shape == (0,)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "amax", "argmax", "max", "prod", "softmax"])
def test_wrong_dimensions(name):
    reduce = getattr(tt.zeros(2, 3), name)
    for dim in (2, -3):
        with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got"):
            reduce(dim=dim)
    with pytest.raises(TypeError):
        reduce(dim=1.5)


def test_refusals():
    whole = tt.tensor([1, 2, 3])
    for reduce in (whole.mean, whole.var, whole.std, whole.norm):
        with pytest.raises(RuntimeError, match="float"):
            reduce()
    with pytest.raises(NotImplementedError):
        whole.softmax(0)
    with pytest.raises(RuntimeError, match="multiple times"):
        tt.zeros(2, 3).sum((0, -2))
    with pytest.raises(RuntimeError, match="bool"):
        tt.tensor([True]).argmax()
    with pytest.raises(TypeError):
        tt.zeros(3).var(unbiased=False, correction=0)
    with pytest.raises(TypeError):
        tt.zeros(3).softmax(None)
    with pytest.raises(TypeError):
        tt.zeros(3).norm("nuc")
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        tt.sum([1.0, 2.0])


def test_too_few_for_a_variance():
    assert math.isnan(tt.tensor([1.0]).var().item())
    assert tt.tensor([1.0, 2.0]).var(correction=3).item() == math.inf
    assert tt.tensor([1.0, 3.0]).var(False).item() == 1.0


def test_the_slope_of_a_variance_of_too_few(device):
    for correction, expected in ((0, 0.0), (1, math.nan), (2, 0.0)):
        x = tt.tensor([3.0], device=device, requires_grad=True)
        x.var(0, correction=correction).backward()
        np.testing.assert_equal(abs(x.grad.item()), expected)


def test_no_slope_at_the_bottom_of_std_and_norm():
    for name in ("std", "norm"):
        x = tt.zeros(3, requires_grad=True)
        getattr(x, name)().backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]
    x = tt.tensor([0.0, 3.0], requires_grad=True)
    assert x.norm(0).item() == 1.0
    x.norm(0).backward()
    assert x.grad.tolist() == [0.0, 0.0]


TIES = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]


def test_who_gets_the_gradient_of_a_tie(device):
    def gradient(function):
        x = tt.tensor(TIES, device=device, requires_grad=True)
        function(x).sum().backward()
        return x.grad.tolist()

    third = float(np.float32(1) / np.float32(3))
    assert gradient(lambda x: x.amax(1)) == [[0.0, 0.5, 0.5], [third, third, third]]
    assert gradient(lambda x: x.max()) == [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    assert gradient(lambda x: x.max(1).values) == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert gradient(lambda x: x.min(1).values) == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["max", "min"])
def test_value_and_place(name, dim, keepdim, device):
    x = tt.tensor(F64, device=device, requires_grad=True)
    result = getattr(x, name)(dim, keepdim)
    place = getattr(np, f"arg{name}")(F64, axis=dim, keepdims=keepdim)
    np.testing.assert_array_equal(values(result.indices), place)
    np.testing.assert_array_equal(
        values(result.values), getattr(np, name)(F64, axis=dim, keepdims=keepdim)
    )
    assert result.indices.dtype is tt.int64 and not result.indices.requires_grad
    np.testing.assert_array_equal(values(getattr(x, f"arg{name}")(dim, keepdim)), place)
    assert gradcheck(lambda x: getattr(x, name)(dim, keepdim)[0], x)
    assert gradgradcheck(lambda x: getattr(x, name)(dim, keepdim)[0], x)


def test_results_with_names_print_as_pytorchs():
    assert repr(tt.tensor([1, 7]).max(0)) == (
        "tinytorch.return_types.max(\nvalues=tensor(7),\nindices=tensor(1))"
    )


def test_three_meanings_of_max():
    a, b = tt.tensor([1.0, 5.0]), tt.tensor([4.0, 2.0])
    assert tt.max(a).item() == 5.0
    assert tt.max(a, 0).indices.item() == 1
    assert tt.max(a, b).tolist() == [4.0, 5.0]
    assert tt.min(a, other=b).tolist() == [1.0, 2.0]
    assert tt.argmax(F64_tensor := tt.tensor(F64)).item() == F64.argmax()
    assert F64_tensor.argmax(keepdim=True).shape == (1, 1, 1)


def test_nan_is_the_largest_and_the_smallest():
    x = tt.tensor([1.0, math.nan, 3.0])
    assert math.isnan(x.max().item()) and math.isnan(x.min(0).values.item())
    assert x.argmax().item() == x.argmin().item() == 1


def test_all_and_any(device):
    x = tt.tensor([[True, False], [True, True]], device=device)
    assert x.all().item() is False and x.any().item() is True
    assert x.all(1).tolist() == [False, True]
    assert x.any((0, 1), keepdim=True).tolist() == [[True]]
    assert x.all(()).shape == (2, 2)  # as PyTorch: no dimension is no reduction
    assert tt.tensor([2, 0], dtype=tt.uint8).any().dtype is tt.uint8
    assert tt.tensor([math.nan]).all().item() is True


# Softmax and its relatives.


@pytest.mark.parametrize("shape", [(2, 3, 4), (3,), (), (0, 3), (40, 50)])
def test_softmax(shape, device):
    array = np.random.default_rng(2).normal(size=shape) * 5
    x = tt.tensor(array, device=device)
    if array.size:
        e = np.exp(array - array.max(axis=-1, keepdims=True)) if shape else np.exp(0 * array)
        want = e / e.sum(axis=-1, keepdims=True) if shape else e
    else:
        want = array
    np.testing.assert_allclose(values(x.softmax(-1)), want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(values(x.log_softmax(-1)), np.log(want), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        values(x.float().softmax(-1)), want.astype(np.float32), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("size", [16, 100])
def test_softmax_of_many_rows(device, scale, size):
    """More than 1,000 elements take another way: small ones without their maximum."""
    array = (np.random.default_rng(0).normal(size=(200, size)) * scale).astype(np.float32)
    array[0, :-1] = -np.inf
    for part in (array, array[1:]):
        exact = np.exp(part.astype(np.float64) - part.max(axis=1, keepdims=True))
        y = tt.tensor(part, device=device).softmax(1).numpy(force=True)
        np.testing.assert_allclose(
            y, exact / exact.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-7
        )
    x = tt.tensor(array[1:9, :16].astype(np.float64), device=device, requires_grad=True)
    assert gradcheck(lambda x: x.softmax(1), (x,))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_gradient(name, dim):
    x = tt.tensor(F64[0], requires_grad=True)
    assert gradcheck(lambda x: getattr(x, name)(dim), x)
    assert gradgradcheck(lambda x: getattr(x, name)(dim), x)


def test_exponentials_do_not_overflow(device):
    x = tt.tensor([[1000.0, 1000.0], [0.0, -1000.0]], device=device)
    assert x.softmax(1).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert x.log_softmax(1)[1].tolist() == [0.0, -1000.0]
    assert x.logsumexp(1).tolist() == [float(np.float32(1000 + math.log(2))), 0.0]


def test_logsumexp_of_infinities():
    x = tt.tensor([[-math.inf, -math.inf], [math.inf, 0.0], [1.0, -math.inf]], requires_grad=True)
    y = x.logsumexp(1)
    assert y.tolist() == [-math.inf, math.inf, 1.0]
    y[::2].sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0] and x.grad[2].tolist() == [1.0, 0.0]
    assert tt.tensor([1, 2]).logsumexp(0).dtype is tt.float32


# Running sums, and products.


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cumsum(dim, device):
    x = tt.tensor(F64, device=device, requires_grad=True)
    np.testing.assert_allclose(values(x.cumsum(dim)), np.cumsum(F64, axis=dim))
    assert gradcheck(lambda x: x.cumsum(dim), x)
    assert gradgradcheck(lambda x: x.cumsum(dim), x)
    assert tt.tensor(2.0).cumsum(0).item() == 2.0


@pytest.mark.parametrize(
    "row", [[1.5, -2.0, 0.5, 3.0], [1.5, 0.0, 0.5, 3.0], [0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 2.0]]
)
def test_product_with_zeros(row, device):
    x = tt.tensor([row, [2.0, 1.0, -1.0, 3.0]], dtype=tt.float64, device=device, requires_grad=True)
    for function in (
        lambda x: x.prod(),
        lambda x: x.prod(1),
        lambda x: x.prod(0, keepdim=True),
    ):
        assert gradcheck(function, x)
        assert gradgradcheck(function, x)
    np.testing.assert_allclose(values(x.prod(0)), np.prod(values(x), axis=0))


def test_a_product_that_underflows_still_has_a_gradient():
    x = tt.tensor([1e-200, 1e-200, 1e200], dtype=tt.float64, requires_grad=True)
    x.prod().backward()
    np.testing.assert_allclose(values(x.grad), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extremes_of_many_short_rows(name, device):
    array = np.random.default_rng(0).standard_normal((60, 5, 7)).astype(np.float32)
    array[3, 2, 1] = np.nan
    x = tt.tensor(array, device=device)
    expected = getattr(np, name)(array, axis=-1)
    for y in (getattr(x, name)(-1), getattr(x.transpose(0, 1), name)(2).T):
        np.testing.assert_array_equal(y.cpu().numpy(), expected)
    assert getattr(x, name)(-1, keepdim=True).shape == (60, 5, 1)


def test_count_and_functions_of_methods(device):
    x = tt.tensor([[3.0, 0.0], [0.0, 4.0]], device=device)
    assert x.count_nonzero(0).tolist() == [1, 1] and tt.count_nonzero(x).item() == 2
    assert tt.numel(x) == 4 and tt.is_floating_point(x)
    assert not tt.detach(x.requires_grad_()).requires_grad


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_for_nan_and_infinity(name, device):
    dtype = getattr(tt, name)
    x = tt.tensor([1.0, math.nan, math.inf, -math.inf], dtype=dtype, device=device)
    limit = tt.finfo(dtype).max
    assert x.nan_to_num().tolist() == [1.0, 0.0, limit, -limit]
    assert tt.nan_to_num(x, 2.0, 3.0, 4.0).tolist() == [1.0, 2.0, 3.0, 4.0]
    x = x.float().requires_grad_()
    (g,) = tt.autograd.grad(x.nan_to_num().sum(), x)
    assert g.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["sum", "mean", "prod"])
def test_names_of_nodes_are_pytorchs(name):
    x = tt.ones(2, 3, requires_grad=True)
    reduce = getattr(tt, name)
    assert reduce(x).grad_fn.name() == f"{name.title()}Backward0"
    assert reduce(x, 1).grad_fn.name() == f"{name.title()}Backward1"


def test_a_write_into_a_view_is_a_node_of_its_base():
    x = tt.ones(2, 3, requires_grad=True).clone()
    x[0] = 5.0
    assert x.grad_fn.name() == "CopySlices" and "grad_fn=<CopySlices>" in repr(x)
