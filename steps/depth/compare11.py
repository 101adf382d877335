"""Step compare11: Comparing what a program returns: numbers, lists and mappings

Results are seldom one tensor. A model returns (logits, loss), a state_dict is a mapping of names to
tensors, a history is a list of numbers. assert_close (step compare09) takes two tensors, and a loop
around it forgets the place: "Scalars are not close!", of which of the 60 parameters?

So the two structures are walked through together. Lists must have the same length and mappings the
same keys; what lies in neither is a leaf, and comes with its place, as one would write it:

    {"loss": [1.0, 2.0]}       leaf 2.0 at ['loss'][1]

A leaf may be a tensor, a NumPy array, a number, True or None. A Python float has 64 bits, so it is
compared as a float64. Values of two kinds are never close, such as a tensor and a number: a program
that returns one where it should return the other is wrong.

The trap is the string: it is a sequence, and its elements are strings, which are sequences again.

Changed: assert_close. New: leaves, difference.
Try: assert_close("a", "a") without `and not isinstance(x, str)`.
"""

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


if __name__ == "__main__":

    def said(*pair, **options):
        try:
            assert_close(*pair, **options)
        except (AssertionError, TypeError) as error:
            return "\n".join(line for line in str(error).splitlines() if line)
        return "the same"

    ours = {"w": tensor([1.0, 2.0]), "losses": [0.5, 0.25], "step": 2, "best": None, "done": True}
    print(said(ours, dict(ours)))  # -> the same
    print(said(ours, ours | {"losses": (0.5, 0.3)}))
    # -> Scalars are not close!
    # -> Expected 0.3 but got 0.25.
    # -> Absolute difference: 0.04999999999999999 (up to 1e-07 allowed)
    # -> Relative difference: 0.16666666666666663 (up to 1e-07 allowed)
    # -> The failure occurred for item ['losses'][1]

    others = [{"losses": [0.5]}, {"best": 1.0}, {"done": False}, {"step": 2.0}, {"step": tensor(2)}]
    for other in others:
        print(said(ours, ours | other).splitlines()[0])
    # -> The length of the sequences mismatch: 2 != 1
    # -> None mismatch: None is not 1.0
    # -> Booleans mismatch: True is not False
    # -> The (d)types do not match: <class 'int'> != <class 'float'>.
    # -> assert_close() cannot compare int and Tensor
    print(said({"a": 1}, {"b": 1}))
    # -> The keys of the mappings do not match: missing ['b'], additional ['a']
    print(said(2, 2.0, check_dtype=False), said("a", "a"))
    # -> the same assert_close() cannot compare str and str
    print(said(np.ones(2), np.ones(2)))  # -> the same

    # A message of one's own, or one made of ours.
    print(said(1, 2, msg="the counts differ"))  # -> the counts differ
    print(said(1, 2, msg=lambda text: "after step 3: " + text.partition("!")[0]))
    # -> after step 3: Scalars are not equal
