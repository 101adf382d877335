"""How layers read their arguments: one number for all dimensions, or one for each."""

from collections.abc import Callable, Iterable
from typing import Any


def repeated(n: int) -> Callable[[Any], tuple]:
    """The function that makes n of one number, and a tuple of what has several."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple = map(repeated, (1, 2, 3))
