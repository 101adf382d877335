"""Comparison, logic and bits, and the choices clamp, where and lerp."""

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
RELATIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def make(device, shape):
    array = RNG.uniform(-2, 2, shape)
    return tinytorch.tensor(array, dtype=tinytorch.float64, device=device, requires_grad=True)


@pytest.mark.parametrize("name", RELATIONS)
def test_relations(device, name):
    for shapes in (((2, 3), (3,)), ((), (2,)), ((0, 2), (1, 2))):
        a, b = (RNG.integers(0, 3, shape) for shape in shapes)
        x, y = (tinytorch.tensor(array, device=device) for array in (a, b))
        result = getattr(tinytorch, name)(x, y)
        expected = RELATIONS[name](a, b)
        assert result.cpu().numpy().tolist() == expected.tolist()
        assert result.dtype is (tinytorch.int64 if "bit" in name else tinytorch.bool)
        assert tinytorch.equal(getattr(x, name)(y), result)


def test_operators_with_numbers_and_others(device):
    x = tinytorch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    assert (x > 2).tolist() == [False, False, True] and not (x > 2).requires_grad
    assert (2 >= x).tolist() == [True, True, False]
    assert (x == 2).tolist() == [False, True, False]
    assert (x == None) is False and (x != None) is True  # noqa: E711  (what is tested here)
    assert (tinytorch.tensor([1, 2]) == tinytorch.tensor([1.0, 2.5])).tolist() == [True, False]
    with pytest.raises(TypeError):
        x < "2"  # noqa: B015  (it raises)
    mask = x > 1
    assert (mask & ~mask).tolist() == [False] * 3 and (mask | True).tolist() == [True] * 3
    assert (True ^ mask).tolist() == [True, False, False]
    mask &= x < 3
    assert mask.tolist() == [False, True, False]
    bits = tinytorch.tensor([1, 6], device=device)
    assert ((bits & 3).tolist(), (~bits).tolist()) == ([1, 2], [-2, -7])


def test_questions(device):
    x = tinytorch.tensor([1.0, float("nan"), float("inf")], device=device)
    assert x.isnan().tolist() == [False, True, False]
    assert x.isinf().tolist() == [False, False, True]
    assert x.isfinite().tolist() == [True, False, False]
    assert tinytorch.logical_not(tinytorch.tensor([0, 2], device=device)).tolist() == [True, False]
    assert tinytorch.isfinite(tinytorch.tensor([1, 2])).tolist() == [True, True]


def test_close_and_equal(device):
    a = tinytorch.tensor([1.0, 2.0], device=device)
    assert tinytorch.allclose(a, a + 1e-7) is True
    assert tinytorch.allclose(a, a + 1e-2) is False
    assert tinytorch.isclose(a, tinytorch.tensor([1.0, 3.0], device=device)).tolist() == [
        True,
        False,
    ]
    large = tinytorch.tensor([2**62], device=device)  # one more than it is the same float64
    assert tinytorch.isclose(large, large + 1, 0, 0).tolist() == [False]
    nan = a * float("nan")
    assert not tinytorch.allclose(nan, nan) and tinytorch.allclose(nan, nan, equal_nan=True)
    assert tinytorch.equal(a, a.clone()) and not tinytorch.equal(a, a[:1]) and not a.equal(-a)
    with pytest.raises(RuntimeError):
        tinytorch.isclose(a, a.double())
    with pytest.raises(RuntimeError):
        tinytorch.isclose(a, a, rtol=-1.0)


def test_clamp(device):
    x = tinytorch.tensor([-2.0, 0.5, 3.0], device=device)
    assert x.clamp(0, 1).tolist() == [0.0, 0.5, 1.0]
    assert x.clamp(min=0).tolist() == [0.0, 0.5, 3.0]
    assert tinytorch.clip(x, max=1.0).tolist() == [-2.0, 0.5, 1.0]
    assert x.clamp(2, 1).tolist() == [1.0, 1.0, 1.0]
    assert x.clamp_(0, 1).tolist() == [0.0, 0.5, 1.0]
    assert tinytorch.tensor([1, 5]).clamp(max=2.5).dtype is tinytorch.float32
    with pytest.raises(RuntimeError, match="must not be None"):
        x.clamp()
    a, low, high = make(device, (3, 4)), make(device, (4,)), make(device, (3, 1))
    assert gradcheck(lambda a: a.clamp(-1, 1), a) and gradgradcheck(lambda a: a.clamp(-1, 1), a)
    assert gradcheck(tinytorch.clamp, (a, low, high))
    assert gradgradcheck(tinytorch.clamp, (a, low, high))


def test_clamp_lets_the_gradient_pass_at_its_borders():
    x = tinytorch.tensor([-1.0, 0.0, 1.0, 2.0], requires_grad=True)
    (g,) = tinytorch.autograd.grad(x.clamp(0, 1), x, tinytorch.ones(4))
    assert g.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_where(device):
    x = tinytorch.tensor([-1.0, 2.0], device=device)
    assert tinytorch.where(x > 0, x, 0).tolist() == [0.0, 2.0]
    assert tinytorch.where(x > 0, 1, 0.5).dtype is tinytorch.float32
    assert tinytorch.where(x > 0, 1, 0).dtype is tinytorch.int64
    assert x.where(x > 0, -x).tolist() == [1.0, 2.0]
    assert [i.tolist() for i in tinytorch.where(x > 0)] == [[1]]
    with pytest.raises(RuntimeError, match="boolean"):
        tinytorch.where(x, x, x)
    mask = tinytorch.tensor(RNG.uniform(size=(3, 4)) > 0.5, device=device)
    a, b = make(device, (4,)), make(device, (3, 1))
    assert gradcheck(tinytorch.where, (mask, a, b)) and gradgradcheck(tinytorch.where, (mask, a, b))


def test_lerp(device):
    a, b, w = make(device, (3,)), make(device, (2, 3)), make(device, (2, 1))
    assert gradcheck(tinytorch.lerp, (a, b, w)) and gradgradcheck(tinytorch.lerp, (a, b, 0.3))
    start = tinytorch.tensor([0.0, 10.0], device=device)
    assert start.lerp(tinytorch.tensor([10.0, 20.0], device=device), 0.5).tolist() == [5.0, 15.0]
    with pytest.raises(RuntimeError):
        start.lerp(start.double(), 0.5)


def test_relations_in_place_and_their_other_names(device):
    x = tinytorch.tensor([1.0, 3.0], device=device)
    assert x.clone().gt_(2).tolist() == [0.0, 1.0]
    assert tinytorch.greater(x, 2).tolist() == x.less_equal(2).logical_not().tolist()
    assert tinytorch.tensor([0, 2], device=device).logical_not_().tolist() == [1, 0]
    bits = tinytorch.tensor([1, 6], device=device)
    bits |= 8
    assert bits.tolist() == [9, 14] and bits.bitwise_not_().tolist() == [-10, -15]
    with pytest.raises(NotImplementedError):
        tinytorch.bitwise_and(x, x)


def test_one_border(device):
    x = tinytorch.tensor([-2.0, 0.5, 3.0], device=device)
    assert x.clamp_min(0).tolist() == [0.0, 0.5, 3.0]
    assert tinytorch.clamp_max(x, 1).tolist() == [-2.0, 0.5, 1.0]


def test_lerp_meets_its_ends():
    a, b = tinytorch.tensor([0.1]), tinytorch.tensor([1e8])
    assert tinytorch.lerp(a, b, 1.0).item() == b.item()
    assert tinytorch.lerp(a, b, tinytorch.tensor([0.0])).item() == a.item()
    with pytest.raises(NotImplementedError):
        tinytorch.lerp(tinytorch.tensor([1]), tinytorch.tensor([2]), 0.5)


def test_two_numbers_are_no_relation():
    for name in ("bitwise_and", "eq", "logical_or"):
        with pytest.raises(TypeError, match="must be Tensors"):
            getattr(tinytorch, name)(2, 3)


def test_a_refusal_names_the_function_without_its_aliases():
    with pytest.raises(TypeError, match=r"^lt\(\): arguments must be Tensors"):
        tinytorch.lt([1.0], tinytorch.ones(1))
