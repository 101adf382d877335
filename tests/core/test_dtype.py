"""Element types: PyTorch's promotion, in full, and what a number may not do to a tensor."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

import tinytorch
from tinytorch.core.dtype import DType, as_dtype, numpy_dtype

NAMES = list(DType.by_name)
ALL = [DType.by_name[name] for name in NAMES]
FLOATS = [dtype for dtype in ALL if dtype.is_floating_point]


def named(module, name):
    return getattr(module, name)


def test_names_sizes_and_kinds():
    assert NAMES == ("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split())
    assert [dtype.itemsize for dtype in ALL] == [1, 1, 1, 2, 4, 8, 2, 2, 4, 8]
    assert [dtype.name for dtype in ALL if not dtype.is_signed] == ["bool", "uint8"]
    assert repr(tinytorch.float32) == "tinytorch.float32"
    for dtype in ALL:
        assert numpy_dtype(dtype).itemsize == dtype.itemsize
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert copy.deepcopy(dtype) is dtype


def test_as_dtype():
    assert as_dtype("float64") is as_dtype(np.float64) is as_dtype(tinytorch.float64)
    assert as_dtype(np.dtype("int8")) is tinytorch.int8
    assert as_dtype(float) is tinytorch.float64  # what a Python float is, as in PyTorch
    assert as_dtype(int) is tinytorch.int64
    assert as_dtype(bool) is tinytorch.bool
    for wrong in ("floaty", np.complex128, "U3", object, 3.5, None.__class__):
        with pytest.raises(TypeError, match="not a tinytorch dtype"):
            as_dtype(wrong)


def test_promote_types_is_pytorchs_table():
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(NAMES, NAMES):
        theirs = torch.promote_types(named(torch, a), named(torch, b))
        ours = tinytorch.promote_types(named(tinytorch, a), named(tinytorch, b))
        assert repr(ours) == f"tiny{theirs}", (a, b)


def test_promotion_that_numpy_does_otherwise():
    assert tinytorch.promote_types(tinytorch.int64, tinytorch.float32) is tinytorch.float32
    assert tinytorch.promote_types(tinytorch.int64, tinytorch.float16) is tinytorch.float16
    assert tinytorch.promote_types(tinytorch.float16, tinytorch.bfloat16) is tinytorch.float32
    assert tinytorch.promote_types(tinytorch.uint8, tinytorch.int8) is tinytorch.int16


def operands(module):
    """Every type with a dimension and without, and each kind of Python number."""
    for name in NAMES:
        for shape in ((2,), ()):
            ones = np.ones(shape).tolist()
            yield f"{name}{list(shape)}", module.tensor(ones, dtype=named(module, name))
    yield from (("True", True), ("7", 7), ("1.5", 1.5))


def test_result_type_and_add_are_pytorchs():
    torch = pytest.importorskip("torch")
    theirs, ours = dict(operands(torch)), dict(operands(tinytorch))
    for a, b in itertools.product(theirs, theirs):
        if not isinstance(theirs[a], torch.Tensor) and not isinstance(theirs[b], torch.Tensor):
            continue
        expected = f"tiny{torch.result_type(theirs[a], theirs[b])}"
        assert repr(tinytorch.result_type(ours[a], ours[b])) == expected, (a, b)
        for symbol, operation in OPERATIONS.items():
            wanted = f"tiny{operation(theirs[a], theirs[b]).dtype}"
            assert repr(operation(ours[a], ours[b]).dtype) == wanted, (a, symbol, b)


OPERATIONS = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def test_result_type_of_nothing():
    with pytest.raises((ValueError, TypeError)):
        tinytorch.result_type()


NUMBERS = [2, 0.5, True, np.float64(0.5), np.int64(2), np.float32(0.5)]


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_never_changes_a_float_type(dtype, number, device):
    for data in (1.5, [1.5, 2.5], []):
        x = tinytorch.tensor(data, dtype=dtype, device=device)
        for y in (x + number, x * number, x / number, number + x, number * x, number / x):
            assert y.dtype is dtype
        if number is not True:  # a boolean cannot be subtracted
            assert (x - number).dtype is (number - x).dtype is dtype


def test_a_number_changes_an_integer_type_only_by_its_kind(device):
    x = tinytorch.tensor([1, 2], dtype=tinytorch.int16, device=device)
    assert (x + 1).dtype is tinytorch.int16
    assert (x + True).dtype is tinytorch.int16
    assert (x + 1.0).dtype is tinytorch.float32
    assert (x / 2).dtype is tinytorch.float32
    flags = tinytorch.tensor([True, False], device=device)
    assert (flags + 1).dtype is tinytorch.int64
    assert (flags * 0.5).dtype is tinytorch.float32


def test_numbers_wrap_around_as_elements_do():
    x = tinytorch.tensor([1], dtype=tinytorch.uint8)
    assert (x + 255).tolist() == [0]
    assert (x - 2).tolist() == [255]


def test_int64_with_float32_is_float32(device):
    whole = tinytorch.tensor([1, 2], device=device)
    single = tinytorch.tensor([0.5, 0.5], device=device)
    for y in (whole + single, single * whole, whole / single, single - whole):
        assert y.dtype is tinytorch.float32


def test_float32_stays_float32_there_and_back(device):
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True, device=device)
    double = tinytorch.tensor(2.0, dtype=tinytorch.float64, device=device)
    y = (x * np.float64(0.3) + 2 - double) / (x + tinytorch.tensor([3, 4], device=device))
    y = -(y / double) * tinytorch.tensor(3, device=device)
    assert y.dtype is tinytorch.float32
    y.backward(tinytorch.tensor([1.0, 2.0], device=device))
    assert x.grad.dtype is tinytorch.float32


def test_a_gradient_has_the_type_of_its_tensor(device):
    half = tinytorch.tensor([1.0, 2.0], dtype=tinytorch.float16, device=device, requires_grad=True)
    double = tinytorch.tensor(
        [3.0, 4.0], dtype=tinytorch.float64, device=device, requires_grad=True
    )
    y = half * double
    assert y.dtype is tinytorch.float64
    y.backward(tinytorch.tensor([1.0, 1.0], dtype=tinytorch.float64, device=device))
    assert (half.grad.dtype, half.grad.tolist()) == (tinytorch.float16, [3.0, 4.0])
    assert (double.grad.dtype, double.grad.tolist()) == (tinytorch.float64, [1.0, 2.0])


def test_the_default_type():
    with pytest.raises(TypeError, match="only floating-point types"):
        tinytorch.set_default_dtype(tinytorch.int64)
    tinytorch.set_default_dtype(tinytorch.float64)
    try:
        assert tinytorch.get_default_dtype() is tinytorch.float64
        assert tinytorch.tensor(1.5).dtype is tinytorch.float64
        assert (tinytorch.tensor([1, 2]) / 2).dtype is tinytorch.float64
        assert tinytorch.Tensor([1, 2]).dtype is tinytorch.float64
    finally:
        tinytorch.set_default_dtype(tinytorch.float32)


def test_casts():
    x = tinytorch.tensor([1.9, -1.9, 0.0])
    assert x.long().tolist() == [1, -1, 0]
    assert x.bool().tolist() == [True, True, False]
    assert x.double().dtype is tinytorch.float64
    assert x.float() is x
    assert x.to(tinytorch.int8).type_as(x).dtype is tinytorch.float32


def test_can_cast_is_pytorchs_table():
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(NAMES, NAMES):
        theirs = torch.can_cast(named(torch, a), named(torch, b))
        assert tinytorch.can_cast(named(tinytorch, a), named(tinytorch, b)) == theirs, (a, b)


def test_limits_are_pytorchs():
    torch = pytest.importorskip("torch")
    for name in NAMES[1:]:
        if name.startswith(("float", "bfloat")):
            theirs, ours = torch.finfo(named(torch, name)), tinytorch.finfo(named(tinytorch, name))
            fields = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype")
        else:
            theirs, ours = torch.iinfo(named(torch, name)), tinytorch.iinfo(named(tinytorch, name))
            fields = ("bits", "max", "min")
        for field in fields:
            assert getattr(ours, field) == getattr(theirs, field), (name, field)
        if name.startswith(("float", "bfloat")):
            assert math.isclose(ours.resolution, theirs.resolution)
    with pytest.raises(TypeError):
        tinytorch.finfo(tinytorch.int64)
    with pytest.raises(TypeError):
        tinytorch.iinfo(tinytorch.float32)


def test_limits_print_as_pytorch_prints_them():
    assert repr(tinytorch.finfo(tinytorch.float32)) == (
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
        "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)"
    )
