"""The `dim` argument of an operation: which dimensions it names, counted from the front."""

import operator
from typing import Any


def normalize_dim(dim: int, ndim: int) -> int:
    """`dim` counted from the front: -1 is the last one. IndexError where there is no such one,
    TypeError for what is no integer.

    A 0-d tensor is treated as if it had one dimension: 0 and -1 are right.
    """
    dim, last = operator.index(dim), ndim or 1
    if -last <= dim < last:
        return dim + last if dim < 0 else dim
    raise IndexError(
        f"Dimension out of range (expected to be in range of [{-last}, {last - 1}], but got {dim})"
    )


def normalize_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Each of `dims` (one, or several) counted from the front; RuntimeError where one is twice."""
    dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    result = tuple(normalize_dim(dim, ndim) for dim in dims)
    if len(set(result)) != len(result):
        raise RuntimeError(f"a dim appears multiple times in the list of dims {dims}")
    return result
