"""testing.assert_close against PyTorch's: the same pairs pass, and the others raise the same."""

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

NAN = float("nan")
DTYPES = ["float16", "bfloat16", "float32", "float64", "int64", "bool"]
PAIRS = {
    "shapes": lambda t: (t.ones(2), t.ones(2, 1)),
    "types": lambda t: (t.ones(2), t.ones(2).double()),
    "elements": lambda t: (t.tensor([[1.0, 2.0]]), t.tensor([[1.0, 2.5]])),
    "numbers": lambda t: (0.25, 0.5),
    "whole numbers": lambda t: (1, 2),
    "kinds of numbers": lambda t: (1, 1.0),
    "a number and a tensor": lambda t: (t.tensor(1.0), 1.0),
    "booleans": lambda t: (True, False),
    "None": lambda t: (None, t.ones(1)),
    "text": lambda t: ("a", "a"),
    "list and tuple": lambda t: ([1.0, t.ones(2)], (1.0, t.ones(2))),
    "a nested place": lambda t: ({"a": [1.0, 2.0]}, {"a": [1.0, 3.0]}),
    "lengths": lambda t: ([1], [1, 2]),
    "keys": lambda t: ({"a": 1}, {"b": 1}),
    "nan": lambda t: (t.tensor([NAN]), t.tensor([NAN])),
    "zeros": lambda t: (t.tensor([0.0, 1.0]), t.tensor([1e-5, 1.0])),
    "arrays": lambda t: (np.ones(2), np.zeros(2)),
    "parameters": lambda t: (t.nn.Parameter(t.ones(2)), t.ones(2)),
    "empty": lambda t: (t.zeros(0), t.zeros(0)),
}
OPTIONS = [
    {},
    {"check_dtype": False},
    {"equal_nan": True},
    {"rtol": 0.3, "atol": 0.0},
    {"rtol": 0, "atol": 0},
    {"atol": 1.0},
    {"allow_subclasses": False},
]


def answer(library, pair, options):
    try:
        library.testing.assert_close(*pair(library), **options)
    except (AssertionError, TypeError, ValueError) as error:
        text = str(error).replace("tinytorch", "torch")
        lost = "keys of the mappings" in text or not isinstance(error, AssertionError)
        return type(error), "" if lost else text
    return None


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_same_answer(pair, options):
    assert answer(tinytorch, pair, options) == answer(torch, pair, options)


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_limits(dtype, other):
    """The limits of two types: which of some small differences pass."""
    found = []
    for library in (tinytorch, torch):
        one = library.tensor(1.0, dtype=getattr(library, dtype))
        passed = []
        for difference in (0.0, 3e-8, 1e-6, 1e-5, 1e-4, 1e-2, 0.03):
            two = library.tensor(1.0 + difference, dtype=getattr(library, other))
            done = answer(library, lambda _, p=(one, two): p, {"check_dtype": False})
            passed.append(done is None)
        found.append(passed)
    assert found[0] == found[1]
