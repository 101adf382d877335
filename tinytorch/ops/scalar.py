"""Numbers as elements of a tensor."""

import math
from typing import Any

import numpy as np

from tinytorch.core.dtype import DType, number_dtype, numpy_dtype


def checked_number(number: Any, dtype: DType) -> Any:
    """A number as an element of this type: a fraction is cut off for integer types, and negative
    numbers wrap around for unsigned ones.

    Raises:
        RuntimeError: the number does not fit the type, as no complex one does.
        TypeError: it is not a number.
    """
    usual = type(number) in (float, int) and dtype.is_floating_point
    if usual and not 6e4 < abs(number) < math.inf:
        return float(number)  # all float types hold it, and inf and nan
    if isinstance(number, complex):
        raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {number}")
    number_dtype(number)  # raises TypeError
    array, fits = np.asarray(0), True
    if dtype.category == 1:
        limits = np.iinfo(numpy_dtype(dtype))
        wraps = not dtype.is_signed and not isinstance(number, float)
        fits = (-limits.max if wraps else limits.min) <= number <= limits.max
    if fits:
        with np.errstate(all="ignore"):  # a new thread has not silenced NumPy yet
            array = np.asarray(number).astype(numpy_dtype(dtype))
        fits = not np.isinf(array) or abs(number) == math.inf
    if not fits:
        raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {number}")
    return array.item()
