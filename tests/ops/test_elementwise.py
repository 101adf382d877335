"""The table of element-wise functions: values against NumPy, gradients by differences, types."""

import math

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
# name -> (NumPy's answer, where to look: low and high)
UNARY = {
    "exp": (np.exp, -2, 2),
    "log": (np.log, 0.2, 3),
    "sqrt": (np.sqrt, 0.2, 3),
    "sin": (np.sin, -3, 3),
    "cos": (np.cos, -3, 3),
    "tanh": (np.tanh, -2, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -3, 3),
    "abs": (np.abs, 0.2, 3),
    "relu": (lambda x: np.maximum(x, 0), 0.2, 3),
    "rsqrt": (lambda x: x**-0.5, 0.2, 3),
    "reciprocal": (lambda x: 1 / x, 0.2, 3),
    "exp2": (np.exp2, -2, 2),
    "expm1": (np.expm1, -2, 2),
    "log2": (np.log2, 0.2, 3),
    "log10": (np.log10, 0.2, 3),
    "log1p": (np.log1p, -0.5, 2),
    "tan": (np.tan, -1, 1),
    "asin": (np.arcsin, -0.8, 0.8),
    "acos": (np.arccos, -0.8, 0.8),
    "atan": (np.arctan, -3, 3),
    "sinh": (np.sinh, -2, 2),
    "cosh": (np.cosh, -2, 2),
    "asinh": (np.arcsinh, -3, 3),
    "acosh": (np.arccosh, 1.2, 3),
    "atanh": (np.arctanh, -0.8, 0.8),
    "erf": (np.vectorize(math.erf, otypes=[float]), -2, 2),
    "square": (np.square, -2, 2),
    "floor": (np.floor, 0.1, 0.9),
    "ceil": (np.ceil, 0.1, 0.9),
    "trunc": (np.trunc, 0.1, 0.9),
    "round": (np.round, 0.1, 0.4),
    "sign": (np.sign, 0.2, 3),
    "frac": (lambda x: np.modf(x)[0], 0.1, 0.9),
}
BINARY = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "atan2": np.arctan2,
    "pow": np.power,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "div": np.divide,
    "fmod": np.fmod,
    "hypot": np.hypot,
}


def make(device, shape, low=0.5, high=3.0, dtype=tinytorch.float64, grad=True):
    array = RNG.uniform(low, high, shape).astype(dtype.numpy)
    return tinytorch.tensor(array, device=device, requires_grad=grad)


def values(x):
    return x.cpu().numpy(force=True)


@pytest.mark.parametrize("name", UNARY)
def test_values_and_gradients_of_one_input(device, name):
    expected, low, high = UNARY[name]
    function = getattr(tinytorch, name)
    for shape in ((2, 3), (), (0, 2)):
        x = make(device, shape, low, high)
        y = function(x)
        assert y.shape == shape and y.dtype is tinytorch.float64 and y.device == x.device
        np.testing.assert_allclose(values(y), expected(values(x)), rtol=1e-13, atol=1e-15)
    x = make(device, (3, 2), low, high).T  # not contiguous
    assert gradcheck(function, x.detach().requires_grad_())
    assert gradgradcheck(function, x.detach().requires_grad_())


@pytest.mark.parametrize("name", BINARY)
def test_values_and_gradients_of_two_inputs(device, name):
    function = getattr(tinytorch, name)
    for shapes in (((2, 3), (3,)), ((2, 1), (1, 2)), ((), (2,)), ((0, 2), (2,))):
        a, b = (make(device, shape) for shape in shapes)
        np.testing.assert_allclose(values(function(a, b)), BINARY[name](values(a), values(b)))
        if 0 not in shapes[0]:
            assert gradcheck(function, (a, b))
            assert gradgradcheck(function, (a, b))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "relu", "erf", "abs", "rsqrt"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_types_stay(device, name, dtype):
    dtype = getattr(tinytorch, dtype)
    x = tinytorch.tensor([0.5, 1.5], dtype=dtype, device=device, requires_grad=True)
    for y in (getattr(tinytorch, name)(x), getattr(tinytorch, name)(x[0])):
        assert y.dtype is dtype
    y = getattr(tinytorch, name)(x)
    (g,) = tinytorch.autograd.grad(y, x, tinytorch.ones_like(y))
    assert g.dtype is dtype


def test_half_precision_is_rounded_once(device):
    x = tinytorch.tensor([-3.0, 0.1, 2.0], dtype=tinytorch.bfloat16, device=device)
    exact = tinytorch.sigmoid(x.double()).to(tinytorch.bfloat16)
    assert tinytorch.equal(tinytorch.sigmoid(x), exact)


def test_integers_become_floats_or_stay(device):
    x = tinytorch.tensor([-2, 0, 3], device=device)
    for name in ("exp", "sigmoid", "sin", "erf", "reciprocal", "atan"):
        assert getattr(tinytorch, name)(x).dtype is tinytorch.float32
    for name in ("abs", "sign", "relu", "floor", "ceil", "trunc", "round", "square"):
        assert getattr(tinytorch, name)(x).dtype is tinytorch.int64
    assert (x**2).dtype is tinytorch.int64 and (x**2.0).dtype is tinytorch.float32
    assert (x / 2).dtype is tinytorch.float32 and (x // 2).tolist() == [-1, 0, 1]
    assert (x % 3).tolist() == [1, 0, 0]
    assert tinytorch.maximum(x, tinytorch.tensor(0.5, device=device)).dtype is tinytorch.float32


def test_numbers_on_either_side(device):
    x = tinytorch.tensor([1.0, 2.0], device=device)
    results = {
        "2 ** x": 2**x,
        "x ** 0.5": x**0.5,
        "7 // x": 7 // x,
        "7 % x": 7 % x,
        "x // 2": x // 2,
    }
    for text, y in results.items():
        assert y.dtype is tinytorch.float32, text
    assert (2**x).tolist() == [2.0, 4.0] and (7 % x).tolist() == [0.0, 1.0]
    assert abs(-x).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["exp", "abs", "floor", "pow", "div", "remainder", "round"])
def test_in_place(device, name):
    a = tinytorch.tensor([0.3, 1.7], device=device)
    args = (2.0,) if name in ("pow", "div", "remainder") else ()
    expected = getattr(a, name)(*args)
    assert getattr(a, f"{name}_")(*args) is a
    assert tinytorch.equal(a, expected)


def test_in_place_operators_and_their_errors(device):
    a = tinytorch.tensor([2.0, 3.0], device=device)
    b = a
    a **= 2
    a //= 2
    a %= 3
    assert a is b and a.tolist() == [2.0, 1.0]
    with pytest.raises(RuntimeError, match="can't be cast"):
        tinytorch.tensor([1, 2], device=device).exp_()


def gradient(function, *numbers):
    xs = [tinytorch.tensor(float(n), dtype=tinytorch.float64, requires_grad=True) for n in numbers]
    return [g.item() for g in tinytorch.autograd.grad(function(*xs), xs)]


def test_gradients_at_ties_and_borders():
    assert gradient(tinytorch.maximum, 2, 2) == [0.5, 0.5]
    assert gradient(tinytorch.minimum, 2, 2) == [0.5, 0.5]
    assert gradient(tinytorch.abs, 0) == [0.0]
    assert gradient(tinytorch.relu, 0) == [0.0]
    assert gradient(tinytorch.sign, 1) == [0.0]
    assert gradient(lambda x: x**0, 0) == [0.0]
    assert gradient(lambda x: x**2, 0) == [0.0]
    assert gradient(lambda a, b: a**b, 0, 2) == [0.0, 0.0]
    assert gradient(lambda a, b: a**b, 0, 0) == [0.0, 0.0]
    assert gradient(lambda b: 0.0**b, 2) == [0.0]
    assert gradient(lambda b: 2.0**b, 3) == [pytest.approx(8 * math.log(2))]


@pytest.mark.parametrize("dtype, bound", [("float32", 2e-7), ("float64", 1e-15)])
def test_erf_is_exact_to_the_last_digits(dtype, bound):
    x = np.concatenate([np.linspace(-7, 7, 4001), 10.0 ** np.linspace(-12, 0, 200)]).astype(dtype)
    exact = np.array([math.erf(number) for number in x.astype(float)])
    y = tinytorch.erf(tinytorch.from_numpy(x)).numpy()
    assert y.dtype == dtype and np.abs(y - exact).max() < bound and np.abs(y).max() <= 1
    near = exact != 0
    assert np.abs(y[near] / exact[near] - 1).max() < 2 * bound
    ends = tinytorch.tensor([math.inf, -math.inf, math.nan, 0.0], dtype=getattr(tinytorch, dtype))
    assert str(ends.erf().tolist()) == "[1.0, -1.0, nan, 0.0]"


def test_erf_of_a_large_array_is_computed_in_chunks(monkeypatch, device):
    x = tinytorch.linspace(-3, 3, 60, device=device).reshape(6, 10).T
    whole = tinytorch.erf(x)
    monkeypatch.setattr(x.device.backend, "chunk_elements", 7)
    assert tinytorch.equal(tinytorch.erf(x), whole) and whole.shape == (10, 6)


def test_small_powers_are_products():
    """x ** 3 of NumPy takes as long as 250 products; the operation must not."""
    x = tinytorch.tensor([1.1, -2.0])
    assert (x**3).tolist() == (x * x * x).tolist()
    assert (x**2).tolist() == (x * x).tolist()
    assert (x**5).tolist() == ((x * x) * (x * x) * x).tolist()
    assert (x**-4).tolist() == (1 / ((x * x) * (x * x))).tolist()


@pytest.mark.parametrize("exponent", range(-9, 10))
def test_powers_of_every_small_exponent(exponent, device):
    numbers = np.array([[-1.5, -1.0, 0.5], [1.0, 1.7, 3.0]])
    x = tinytorch.tensor(numbers, device=device, requires_grad=True)
    y = x**exponent
    y.sum().backward()
    slope = exponent * numbers ** float(exponent - 1)
    assert np.allclose(y.numpy(force=True), numbers ** float(exponent), rtol=1e-14)
    assert np.allclose(x.grad.numpy(force=True), slope, rtol=1e-14)
    assert gradgradcheck(lambda x: x**exponent, x)


def test_what_is_saved():
    """exp needs only its output: the input may be overwritten. For sin it is the other way."""
    x = tinytorch.ones(2, requires_grad=True) * 1
    y = x.exp()
    x.zero_()
    y.backward(tinytorch.ones(2))
    x = tinytorch.ones(2, requires_grad=True) * 1
    y = x.sin()
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(tinytorch.ones(2))


@pytest.mark.parametrize("name", ["sign", "floor", "ceil", "trunc", "round", "frac"])
def test_a_constant_slope_saves_nothing(name, device):
    x = tinytorch.tensor([1.5, -2.5], device=device, requires_grad=True)
    y = x * 1
    z = 3 * getattr(y, name)()
    y.zero_()
    z.backward(tinytorch.ones(2, device=device))
    assert x.grad.tolist() == ([3.0, 3.0] if name == "frac" else [0.0, 0.0])


def test_the_slope_of_powers_of_zero(device):
    for base in (0, 0.0, tinytorch.zeros(3, device=device)):
        x = tinytorch.tensor([-1.0, 0.0, 2.0], device=device, requires_grad=True)
        (base**x).backward(tinytorch.ones(3, device=device))
        assert x.grad.tolist() == [-math.inf, 0.0, 0.0] and x.grad.dtype is tinytorch.float32


def test_rounded_quotients(device):
    a = tinytorch.tensor([7, -7, 2**62 + 2], device=device)
    assert a.div(2, rounding_mode="floor").tolist() == [3, -4, 2**61 + 1]
    assert a.div(2, rounding_mode="trunc").tolist() == [3, -3, 2**61 + 1]
    assert tinytorch.div(7, a, rounding_mode="trunc").tolist() == [1, -1, 0]
    x = tinytorch.tensor([7.0, -7.0], device=device, requires_grad=True)
    y = tinytorch.div(x, 2, rounding_mode="trunc")
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([3.0, -3.0], [0.0, 0.0])
    assert a.div_(2, rounding_mode="floor").tolist() == [3, -4, 2**61 + 1]
    with pytest.raises(RuntimeError, match="'down'"):
        tinytorch.div(x, 2, rounding_mode="down")
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        tinytorch.div(a, 0, rounding_mode="trunc")


def test_rounding_to_decimals(device):
    x = tinytorch.tensor([0.125, 2.71828, 1250.0], dtype=tinytorch.float64, device=device)
    assert x.round(decimals=2).tolist() == [0.12, 2.72, 1250.0]
    assert x.round(decimals=-2).tolist() == [0.0, 0.0, 1200.0]
    assert x.round_(decimals=1).tolist() == [0.1, 2.7, 1250.0]
    with pytest.raises(NotImplementedError, match="int64"):
        tinytorch.tensor([1]).round(decimals=1)


@pytest.mark.parametrize("decimals, expected", [(2, 1250.0), (5, 1250.0), (-2, 1200.0), (-5, 0.0)])
@pytest.mark.parametrize("dtype", [tinytorch.float16, tinytorch.bfloat16])
def test_rounding_halves_does_not_overflow(decimals, expected, dtype, device):
    y = tinytorch.tensor([1250.0], dtype=dtype, device=device).round(decimals=decimals)
    assert y.dtype is dtype
    assert y.tolist() == [pytest.approx(expected, rel=1 / 128)]


def test_a_quotient_of_booleans_is_cut(device):
    x = tinytorch.tensor([True, False], device=device)
    y = tinytorch.div(x, tinytorch.tensor([1, 2], device=device), rounding_mode="trunc")
    assert y.dtype is tinytorch.int64 and y.tolist() == [1, 0]


def test_rounding(device):
    x = tinytorch.tensor([0.5, 1.5, 2.5, -0.5], device=device)
    assert x.round().tolist() == [0.0, 2.0, 2.0, 0.0]
    assert tinytorch.tensor([7, -7], device=device).round().tolist() == [7, -7]


@pytest.mark.parametrize(
    "error, call",
    [
        (TypeError, lambda x: tinytorch.exp(1.0)),
        (TypeError, lambda x: tinytorch.maximum(x, 1.0)),
        (TypeError, lambda x: x ** "2"),
        (RuntimeError, lambda x: x**-1),
        (RuntimeError, lambda x: x // 0),
        (RuntimeError, lambda x: x % 0),
        (RuntimeError, lambda x: tinytorch.maximum(x, tinytorch.ones(4))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error):
        call(tinytorch.tensor([1, 2, 3]))


@pytest.mark.parametrize("name", ["abs", "relu", "floor", "ceil", "trunc", "round"])
def test_booleans_are_refused(name, device):
    with pytest.raises(NotImplementedError, match="bool"):
        getattr(tinytorch, name)(tinytorch.tensor([True], device=device))


def test_the_difference_of_booleans_is_refused_in_our_words():
    mask = tinytorch.tensor(True)
    for call in (lambda: mask - mask, lambda: -mask):
        with pytest.raises(RuntimeError, match="is not implemented for bool"):
            call()


def test_integers_to_negative_powers(device):
    a = tinytorch.tensor([1, -1, -1, 2, 0, 3], device=device)
    b = tinytorch.tensor([-1, -3, -2, -2, -1, 2], device=device)
    assert (a**b).tolist() == [1, -1, 1, 0, 0, 9]
    assert (2 ** tinytorch.tensor([-1, 3], device=device)).tolist() == [0, 8]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        a**-1


def test_two_kinds_of_remainder(device):
    n = tinytorch.tensor([7, -7], device=device)
    assert tinytorch.remainder(n, 3).tolist() == [1, 2]
    assert tinytorch.fmod(n, 3).tolist() == [1, -1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        tinytorch.fmod(n, 0)


def test_no_slope_where_there_is_no_angle():
    zero = tinytorch.zeros(2, requires_grad=True)
    tinytorch.atan2(zero[0], zero[1]).backward()
    assert zero.grad.tolist() == [0.0, 0.0]


def test_nan_in_a_maximum_hands_the_gradient_on():
    x = tinytorch.tensor([float("nan"), 1.0], requires_grad=True)
    tinytorch.maximum(x, tinytorch.tensor([1.0, 2.0])).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]
    assert tinytorch.sign(x).tolist() == [0.0, 1.0]


def test_no_form_in_place_that_pytorch_lacks():
    for name in ("maximum_", "minimum_"):
        assert not hasattr(tinytorch.Tensor, name)


def test_two_numbers_make_a_tensor():
    for y, expected, dtype in (
        (tinytorch.add(2, 3), 5, "int64"),
        (tinytorch.mul(2.5, 2), 5.0, "float32"),
        (tinytorch.div(1, 2), 0.5, "float32"),
    ):
        assert (y.tolist(), y.dtype.name) == (expected, dtype)


def test_another_type_by_its_second_name(device):
    x = tinytorch.ones(2, device=device)
    assert x.type(tinytorch.int64).dtype is tinytorch.int64 and x.type(x.dtype) is x
    assert x.is_cpu == (device == "cpu")


def test_what_a_division_of_float32_leaves_is_exact(device):
    """As computed in float64, for quotients of all sizes; also where it takes another way."""
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e6, 1e20):
        a, b = (rng.standard_normal(500).astype(np.float32) for _ in range(2))
        a *= np.float32(scale)
        for name in ("fmod", "remainder"):
            expected = getattr(np, name)(a.astype(np.float64), b.astype(np.float64))
            x, y = (tinytorch.tensor(part, device=device) for part in (a, b))
            found = getattr(tinytorch, name)(x, y).numpy(force=True)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_a_number_counts_as_float32_in_a_remainder(device):
    x = np.linspace(-2.0, 2.0, 100, dtype=np.float32)
    b = np.float32(0.3).astype(np.float64)
    for name in ("fmod", "remainder"):
        found = getattr(tinytorch, name)(tinytorch.tensor(x, device=device), 0.3)
        expected = getattr(np, name)(x.astype(np.float64), b)
        np.testing.assert_array_equal(found.numpy(force=True), expected.astype(np.float32))
