"""Integers and shapes among the arguments of an operation."""

import operator
import sys
from typing import Any

import numpy as np

from tinytorch.core.arguments import not_an_integer


def as_integer(number: Any) -> int:
    """An integer argument as Python's int: NumPy's integers, and tensors of one, count too.

    Raises:
        TypeError: it is of another type, such as float, bool or an array.
    """
    if isinstance(number, (bool, np.ndarray)):  # which operator.index would take
        raise not_an_integer(number)
    try:
        return operator.index(number)
    except TypeError:
        raise not_an_integer(number) from None


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """(2, 3) from `f(2, 3)` and from `f((2, 3))`, as PyTorch takes sizes either way.

    Raises:
        TypeError: there are none, as in `f()`; `f(())` has the shape (). Or one is not an integer.
    """
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise TypeError(f"{sys._getframe(1).f_code.co_name}() is missing its sizes")
    return tuple([n if type(n) is int else as_integer(n) for n in sizes])
