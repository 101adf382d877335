"""Step compare10: Where two tensors differ, and by how much

"1 of 4096 elements are not close": which one, and is it wrong by a rounding error or by a factor?
To find out, a reader prints both tensors and looks for the place, which the comparison knew
already.

Two numbers tell most, each with the index where it was found:

    the greatest |a - e|            large numbers count for more
    the greatest |a - e| / |e|      small ones do

One element of many points to an edge: the last row, a nan, an index. All elements by the same
factor point to a mean that should be a sum. Of two single numbers, both are shown.

Elements that are close are left out: 0 / 0 would be nan, and argmax finds a nan first. A nan that
is a mismatch is found first as well, which is what we want.

Changed: mismatch. New: greatest, describe.
Try: replace np.where(...) in `describe` by its last argument, and compare [0.0, 1.0] with [0.0,
2.0].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import DType, float64, int64, promote_types
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


def greatest(kind: str, differences: np.ndarray, allowed: float | None) -> str:
    """A line with the greatest of these differences, where it is, and what is allowed."""
    limit = "" if allowed is None else f" (up to {allowed} allowed)"
    if not differences.ndim:
        return f"{kind.capitalize()} difference: {differences.item()}{limit}"
    place = np.unravel_index(np.argmax(differences), differences.shape)
    index = tuple(map(int, place))
    return f"Greatest {kind} difference: {differences[place]} at index {index}{limit}"


def describe(actual: Tensor, expected: Tensor, close: Tensor, rtol: float, atol: float) -> str:
    """What is said of two tensors of one type and shape that are not close."""
    a, b = (x if x.dtype.is_floating_point else x.to(int64) for x in (actual, expected))
    absolute = (a - b).abs()
    relative = absolute / b.abs()  # of an expected 0: inf
    absolute, relative = (
        np.where(close.array, 0, x.to(int64 if x.dtype is int64 else float64).array)
        for x in (absolute, relative)
    )
    size, wrong = close.array.size, close.array.size - int(close.array.sum())
    first = f"Mismatched elements: {wrong} / {size} ({wrong / size:.1%})"
    if not close.array.ndim:
        first = f"Expected {expected.item()} but got {actual.item()}."
    what, how = "Tensor-likes" if close.array.ndim else "Scalars", "close"
    if rtol == atol == 0:
        how, rtol, atol = "equal", None, None
    lines = [first, greatest("absolute", absolute, atol), greatest("relative", relative, rtol)]
    return "\n".join([f"{what} are not {how}!\n", *lines])


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
    return None if close.array.all() else describe(actual, expected, close, rtol, atol)


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
        AssertionError: they differ. The message says in what, how far, and where.
    """
    checks = {"device": check_device, "dtype": check_dtype}
    message = mismatch(actual, expected, rtol, atol, equal_nan, **checks)
    if message is not None:
        raise AssertionError(message)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    def said(*pair, **options):
        try:
            assert_close(*pair, **options)
        except AssertionError as error:
            return "\n".join(line for line in str(error).splitlines() if line)
        return "the same"

    print(said(tensor([[0.0, 2.0], [3.0, 4.5]]), tensor([[0.0, 2.0], [3.0, 4.0]])))
    # -> Tensor-likes are not close!
    # -> Mismatched elements: 1 / 4 (25.0%)
    # -> Greatest absolute difference: 0.5 at index (1, 1) (up to 1e-05 allowed)
    # -> Greatest relative difference: 0.125 at index (1, 1) (up to 1.3e-06 allowed)

    # The greatest differences of both kinds may lie in two places. An expected 0 is infinitely far.
    print(said(tensor([0.5, 7.0]), tensor([0.0, 9.0])))
    # -> Tensor-likes are not close!
    # -> Mismatched elements: 2 / 2 (100.0%)
    # -> Greatest absolute difference: 2.0 at index (1,) (up to 1e-05 allowed)
    # -> Greatest relative difference: inf at index (0,) (up to 1.3e-06 allowed)

    print(said(tensor(7), tensor(9)))
    # -> Scalars are not equal!
    # -> Expected 9 but got 7.
    # -> Absolute difference: 2
    # -> Relative difference: 0.2222222238779068
