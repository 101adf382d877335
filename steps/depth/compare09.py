"""Step compare09: Two results that should be the same

A test compares what a program computes with what is expected. The elements are never equal to the
last digit, so it asks allclose, and adds what allclose does not look at:

    ours.shape == theirs.shape and ours.dtype is theirs.dtype and allclose(ours, theirs)

Without the first part, a column and a row are compared by broadcasting, and the test may pass.
assert_close does all three, and raises an AssertionError that says which of them failed.

How close the elements have to be depends on the type. A float32 has 7 digits, and a sum of some
products loses one or two of them; a float64 has 16. The limits are rtol, a part of the expected
number, and atol:

    |a - e| <= atol + rtol |e|

    float16 1e-3    bfloat16 1.6e-2    float32 1.3e-6    float64 1e-7    others: equal

The trap is the default of allclose, which is rtol = 1e-5 for every type: float16 is never that
close, and a float64 that was rounded to float32 on its way is.

(PyTorch's word: torch.testing.assert_close.)

New: TOLERANCES, tolerances, mismatch, assert_close.
Try: compare 0.1 + 0.2 with 0.3, in float64, with rtol=0 and atol=0.
"""

from collections.abc import Sequence
from typing import Any

from tinytorch.core.dtype import DType, promote_types
from tinytorch.core.tensor import Tensor
from tinytorch.ops.comparison import isclose

# (rtol, atol) by type: about half of the digits that it has. Two numbers of another type are equal.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def tolerances(dtypes: Sequence[DType], rtol: float | None, atol: float | None) -> tuple:
    """Both tolerances as they are given; else the larger ones of these types.

    Raises:
        ValueError: only one of them is given.
    """
    if (rtol is None) is not (atol is None):
        raise ValueError(f"rtol and atol go together, but got rtol={rtol} and atol={atol}")
    known = [TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes]
    return tuple(map(max, zip(*known, strict=True))) if rtol is None else (rtol, atol)


def mismatch(
    actual: Tensor, expected: Tensor, rtol: Any, atol: Any, equal_nan: bool, **checks: bool
) -> str | None:
    """What differs between two tensors: their shapes, what `checks` asks for, or their elements."""
    rtol, atol = tolerances((actual.dtype, expected.dtype), rtol, atol)
    for name in ["shape", *(name for name, wanted in checks.items() if wanted)]:
        a, b = getattr(actual, name), getattr(expected, name)
        if a != b:
            return f"The values for attribute '{name}' do not match: {a} != {b}."
    dtype = promote_types(actual.dtype, expected.dtype)
    actual, expected = (x.detach().to("cpu", dtype) for x in (actual, expected))
    close = isclose(actual, expected, rtol, atol, equal_nan)
    wrong = close.array.size - int(close.array.sum())
    return f"{wrong} of {close.array.size} elements are not close" if wrong else None


def assert_close(
    actual: Tensor,
    expected: Tensor,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
) -> None:
    """Two tensors that should be the same, but for rounding: |a - e| <= atol + rtol * |e|.

    Raises:
        AssertionError: they differ. The message says in what.
    """
    checks = {"device": check_device, "dtype": check_dtype}
    message = mismatch(actual, expected, rtol, atol, equal_nan, **checks)
    if message is not None:
        raise AssertionError(message)


if __name__ == "__main__":
    from tinytorch.core.dtype import float16, float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.comparison import allclose

    # A row and a column: allclose compares each with each, and finds them the same.
    row, column = tensor([1.0, 1.0]), tensor([[1.0], [1.0]])
    print(allclose(row, column))  # -> True

    def said(*pair, **options):
        try:
            assert_close(*pair, **options)
        except (AssertionError, ValueError) as error:
            return str(error)
        return "the same"

    print(said(row, column).partition(" match: ")[2])
    # -> tinytorch.Size([2]) != tinytorch.Size([2, 1]).
    print(said(row, row.to(float64)))
    # -> The values for attribute 'dtype' do not match: tinytorch.float32 != tinytorch.float64.
    print(said(row, row.to(float64), check_dtype=False))  # -> the same
    print(said(row, tensor([1.0, 1.5])))  # -> 1 of 2 elements are not close
    print(said(row, tensor([1.0, 1.5]), rtol=0.5, atol=0.0))  # -> the same

    # The type decides what is close. Integers have to be equal.
    for dtype in (float16, float64):
        third = tensor(1 / 3, dtype=dtype)
        print(said(third, third * 1.0005))
    # -> the same
    # -> 1 of 1 elements are not close
    print(said(tensor([100, 200]), tensor([100, 201])))  # -> 1 of 2 elements are not close

    nan = tensor(float("nan"))
    print(said(nan, nan), "/", said(nan, nan, equal_nan=True))
    # -> 1 of 1 elements are not close / the same
    print(said(nan, nan, rtol=0.1))
    # -> rtol and atol go together, but got rtol=0.1 and atol=None
