"""Numbers, nested sequences and arrays, converted to one NumPy array."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import (
    Defaults,
    DType,
    as_dtype,
    number_dtype,
    numpy_dtype,
    promote_types,
)


def parse_nested(data: Any, depth: int = 1) -> tuple[Any, tuple[int, ...], DType | None]:
    """Nested data as (lists of Python numbers, shape, dtype); `depth` is for messages."""
    if hasattr(data, "array"):  # a Tensor, which stands for a number
        if data.array.size != 1:
            error = ValueError if data.dtype.is_floating_point else TypeError
            raise error("only one element tensors can be converted to Python scalars")
        return data.item(), (), data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        return data.tolist(), data.shape, as_dtype(data.dtype)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        kinds = set(map(type, data))
        if kinds and kinds <= {float, int, bool}:
            dtypes = [number_dtype(kind()) for kind in kinds]
            return list(data), (len(data),), functools.reduce(promote_types, dtypes)
        parts, shape, dtype = [], None, None
        for item in data:
            part, its_shape, its_dtype = parse_nested(item, depth + 1)
            if shape is not None and its_shape != shape:
                raise ragged(shape, its_shape, depth)
            parts.append(part)
            shape = its_shape
            if its_dtype is not None:
                dtype = its_dtype if dtype is None else promote_types(dtype, its_dtype)
        return parts, (len(parts), *(shape or ())), dtype
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    try:
        return data, (), number_dtype(data)
    except TypeError:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") from None


def ragged(expected: tuple[int, ...], found: tuple[int, ...], dim: int) -> Exception:
    """The error for two parts of one sequence, from dimension `dim` on, that differ in shape."""
    for a, b in zip(expected, found, strict=False):
        if a != b:
            return ValueError(f"expected sequence of length {a} at dim {dim} (got {b})")
        dim += 1
    return TypeError(f"expected only numbers or only sequences at dim {dim}, got both")


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    if type(data) in (float, int, bool):
        found = number_dtype(data)
    else:
        data, _, found = parse_nested(data)
    wanted = numpy_dtype((found or Defaults.dtype) if dtype is None else dtype)
    if wanted.kind in "iu" and found is not None and found.is_floating_point:
        values = np.trunc(np.array(data, dtype=np.float64))
        array = values.astype(wanted)
        if (array != values).any():
            wrong = np.extract(array != values, values)[0]
            raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {wrong}")
        return array
    try:
        return np.array(data, dtype=wanted)
    except OverflowError as error:
        values = np.array(data)  # for unsigned types -1 is the largest number, as in PyTorch
        if wanted.kind == values.dtype.kind.replace("i", "u") and (abs(values) <= 255).all():
            return values.astype(wanted)
        raise RuntimeError(f"value cannot be converted to {dtype or found}: {error}") from None
