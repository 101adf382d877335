"""tinytorch.testing: assert_close says where two results differ, and by how much."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import DType, float64, int64, promote_types
from tinytorch.core.tensor import Tensor, tensor
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


def leaves(actual: Any, expected: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(place, actual, expected) of all that is neither a list nor a mapping.

    Raises:
        AssertionError: lists of different lengths, mappings of different keys.
    """
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            missing = [key for key in expected if key not in actual]
            more = [key for key in actual if key not in expected]
            raise AssertionError(
                f"The keys of the mappings do not match: missing {missing}, additional {more}"
            )
        for key in expected:
            yield from leaves(actual[key], expected[key], f"{place}[{key!r}]")
    elif all(isinstance(x, Sequence) and not isinstance(x, str) for x in (actual, expected)):
        if (a := len(actual)) != (b := len(expected)):
            raise AssertionError(f"The length of the sequences mismatch: {a} != {b}")
        for i, pair in enumerate(zip(actual, expected, strict=True)):
            yield from leaves(*pair, f"{place}[{i}]")
    else:
        yield place, actual, expected


def difference(actual: Any, expected: Any, subclasses: bool, *limits: Any, **checks: Any) -> Any:
    """What differs between two tensors, arrays, numbers, booleans or Nones; None if nothing does.

    Raises:
        TypeError: two things that cannot be compared.
    """
    pair, kinds = (actual, expected), (type(actual), type(expected))
    if actual is None or expected is None or kinds == (bool, bool):
        word = "Booleans" if kinds == (bool, bool) else "None"
        return None if actual is expected else f"{word} mismatch: {actual} is not {expected}"
    if all(isinstance(x, (int, float)) for x in pair):
        # A Python float has 64 bits, as in NumPy.
        said = mismatch(*(tensor(np.asarray(x)) for x in pair), *limits, dtype=False)
        if checks["dtype"] and kinds[0] is not kinds[1]:
            said = f"The (d)types do not match: {kinds[0]} != {kinds[1]}."
        return said
    related = issubclass(*kinds) or issubclass(*kinds[::-1])
    if kinds[0] is kinds[1] or (related and subclasses):
        if all(isinstance(x, Tensor) for x in pair):
            return mismatch(*pair, *limits, **checks)
        if all(isinstance(x, (np.ndarray, np.generic)) for x in pair):
            return mismatch(*(tensor(x) for x in pair), *limits, **checks)
    raise TypeError(f"assert_close() cannot compare {kinds[0].__name__} and {kinds[1].__name__}")


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Two results that should be the same, but for rounding: |a - e| <= atol + rtol * |e|.

    They are tensors, NumPy arrays, numbers, or lists and mappings of these, however deep. `msg` is
    said instead of the message, or makes another one of it.

    Raises:
        AssertionError: they differ. The message says in what, how far, and where.
    """
    checks = {"device": check_device, "dtype": check_dtype}
    try:
        for place, *pair in leaves(actual, expected):
            said = difference(*pair, allow_subclasses, rtol, atol, equal_nan, **checks)
            if said is not None:
                where = f"\n\nThe failure occurred for item {place}" if place else ""
                raise AssertionError(said + where)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None
