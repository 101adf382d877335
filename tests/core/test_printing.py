"""A tensor prints as PyTorch prints it: fixed texts, and, where PyTorch is there, its own."""

import re

import numpy as np
import pytest

import tinytorch
from tinytorch.core.printing import PrintOptions, set_printoptions

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def default_options():
    """Each test starts from the default options, and leaves them behind."""
    set_printoptions(profile="default")
    yield
    set_printoptions(profile="default")


FIXED = [
    (3, "tensor(3)"),
    (3.0, "tensor(3.)"),
    (True, "tensor(True)"),
    (0.1, "tensor(0.1000)"),
    ([], "tensor([])"),
    ([[]], "tensor([], size=(1, 0))"),
    ([1.0, 2.0], "tensor([1., 2.])"),
    ([1.0, 2.5], "tensor([1.0000, 2.5000])"),
    ([1.0, -2.5], "tensor([ 1.0000, -2.5000])"),
    ([1, -20], "tensor([  1, -20])"),
    ([True, False], "tensor([ True, False])"),
    ([0.0, 1e-5], "tensor([0.0000e+00, 1.0000e-05])"),
    ([1.0, 2000.5], "tensor([1.0000e+00, 2.0005e+03])"),
    ([1e9, 1e9], "tensor([1.0000e+09, 1.0000e+09])"),
    ([NAN, 1.0], "tensor([nan, 1.])"),
    ([INF, -INF, 0.0], "tensor([inf, -inf, 0.])"),
    ([INF, 0.5], "tensor([   inf, 0.5000])"),
    ([[1, 2], [3, 4]], "tensor([[1, 2],\n        [3, 4]])"),
    ([[[1]], [[2]]], "tensor([[[1]],\n\n        [[2]]])"),
]


@pytest.mark.parametrize("data, text", FIXED)
def test_fixed_texts(data, text):
    assert repr(tinytorch.tensor(data)) == text
    assert str(tinytorch.tensor(data)) == text


def test_what_is_not_obvious_is_named():
    double = tinytorch.tensor([1.0], dtype=tinytorch.float64)
    assert repr(double) == "tensor([1.], dtype=tinytorch.float64)"
    assert repr(double.requires_grad_()) == (
        "tensor([1.], dtype=tinytorch.float64, requires_grad=True)"
    )
    x = tinytorch.tensor(2.0, requires_grad=True)
    assert repr(x * x) == "tensor(4., grad_fn=<MulBackward0>)"
    empty = tinytorch.tensor([], dtype=tinytorch.int64)
    assert repr(empty) == "tensor([], dtype=tinytorch.int64)"


def test_the_default_dtype_is_obvious():
    tinytorch.set_default_dtype(tinytorch.float64)
    try:
        assert repr(tinytorch.tensor(0.5)) == "tensor(0.5000)"
        single = tinytorch.tensor(0.5, dtype=tinytorch.float32)
        assert repr(single) == "tensor(0.5000, dtype=tinytorch.float32)"
    finally:
        tinytorch.set_default_dtype(tinytorch.float32)


def test_a_device_that_is_not_the_cpu_is_named(device):
    x = tinytorch.tensor([[1.0, 2.0]], device=device)
    place = "" if device == "cpu" else f", device='{x.device}'"
    assert repr(x) == f"tensor([[1., 2.]]{place})"
    many = tinytorch.tensor(np.arange(2000.0, dtype=np.float32), device=device)
    assert repr(many).startswith("tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03,")


def test_a_subclass_prints_its_name():
    class Weight(tinytorch.Tensor):
        pass

    assert repr(Weight([1.0])) == "Weight([1.])"


def test_a_long_tensor_is_abridged():
    assert (
        repr(tinytorch.tensor(range(1001))) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    )
    rows = repr(tinytorch.tensor(np.zeros((2, 600)))).split("\n")
    assert rows[0] == "tensor([[0., 0., 0.,  ..., 0., 0., 0.],"
    columns = repr(tinytorch.tensor(np.zeros((600, 2)))).split("\n")
    assert len(columns) == 7 and columns[3] == "        ...,"


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="'long'"):
        set_printoptions(profile="long")
    assert PrintOptions.precision == 4


def special_arrays():
    rng = np.random.default_rng(0)
    yield from (np.zeros(shape) for shape in [(), (0,), (0, 3), (2, 0), (3,), (1, 1, 1, 1)])
    yield from (np.full((2, 3), value) for value in (INF, -INF, NAN, -0.0, 1e-45, 1e30, 99999.0))
    for shape in [(7,), (30,), (3, 30), (2, 3, 4), (2, 2, 2, 3), (1001,), (20, 60), (4, 7, 50)]:
        for scale in (1.0, 30.0, 1e4, 1e-4, 1e7):
            values = rng.standard_normal(shape) * scale
            yield values
            yield np.round(values)
            yield np.where(rng.random(shape) < 0.2, [NAN, INF, -INF, 0.0][shape[0] % 4], values)
        yield np.exp(rng.uniform(-20, 20, shape))


def notes_on_one_line(text):
    """The text without line breaks before its notes: our dtypes have longer names than theirs."""
    return re.sub(r",\n {7}([a-z])", r", \1", text.replace("tinytorch.", "torch."))


def assert_same_text(torch, array, dtype, requires_grad=False):
    theirs = torch.tensor(array, dtype=getattr(torch, dtype), requires_grad=requires_grad)
    ours = tinytorch.tensor(array, dtype=getattr(tinytorch, dtype), requires_grad=requires_grad)
    pairs = [(ours, theirs), (ours * 1.0, theirs * 1.0)] if requires_grad else [(ours, theirs)]
    for ours, theirs in pairs:
        if "dtype" in repr(theirs):
            assert notes_on_one_line(repr(ours)) == notes_on_one_line(repr(theirs))
        else:
            assert repr(ours) == repr(theirs)


OPTIONS = [
    {},
    {"precision": 2},
    {"precision": 7, "linewidth": 120},
    {"threshold": 20, "edgeitems": 2},
    {"threshold": 5, "edgeitems": 1, "linewidth": 20},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full", "linewidth": 60},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_like_pytorch(options):
    torch = pytest.importorskip("torch")
    torch.set_printoptions(**options)
    set_printoptions(**options)
    try:
        for number, array in enumerate(special_arrays()):
            if array.size > 300 and options.get("profile") == "full":
                continue
            dtypes = ["float32"] if options else ["float32", "float64", "float16", "bfloat16"]
            for dtype in dtypes:
                assert_same_text(torch, array, dtype, requires_grad=number % 3 == 0)
            if np.isfinite(array).all() and abs(array).max(initial=0) < 2**31:
                for dtype in ("int64", "int32", "uint8", "bool") if number % 4 == 0 else ():
                    values = np.clip(array, 0, 255) if dtype == "uint8" else array
                    assert_same_text(torch, values, dtype)
    finally:
        torch.set_printoptions(profile="default")
