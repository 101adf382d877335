"""From a list of samples to one batch."""

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, as_tensor, tensor
from tinytorch.ops.joining import stack


def rebuilt(original: Any, parts: Any) -> Any:
    """`parts`, a list or a dict, as a container of the kind of `original`.

    As in PyTorch a tuple becomes a list, and so does what cannot be made anew, such as a range.
    """
    if isinstance(original, tuple):
        return type(original)(*parts) if hasattr(original, "_fields") else parts
    try:
        if not isinstance(original, (MutableMapping, MutableSequence)):
            return type(original)(parts)
        clone = copy.copy(original)  # there may be more to it: a defaultdict has its default
        for place, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
            clone[place] = part
        return clone
    except TypeError:
        return parts


def walk(function: Any, data: Any) -> Any:
    """A copy of nested containers, with function(x) in the place of each other value x."""
    if isinstance(data, Mapping):
        return rebuilt(data, {key: walk(function, part) for key, part in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return rebuilt(data, [walk(function, part) for part in data])
    return function(data)


def is_numeric(value: Any) -> bool:
    """Whether this is an array, or a number of NumPy's, that can be a tensor."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "SUO"


def default_convert(data: Any) -> Any:
    """Nested data with tensors in the place of arrays, and all else as it is."""
    return walk(lambda value: as_tensor(value) if is_numeric(value) else value, data)


def default_collate(batch: Sequence) -> Any:
    """Samples of one kind as a batch: tensors, arrays and numbers become one tensor with a new
    first dimension, texts stay a list; dicts, tuples and lists go part by part.

    Raises:
        TypeError: for other kinds.
        RuntimeError: where the lengths or shapes differ.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if is_numeric(first):
        kinds = {(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in batch}
        if len(kinds) == 1:  # NumPy does it in one go
            return as_tensor(np.array(batch))
        return stack([as_tensor(x) for x in batch])
    if isinstance(first, (int, float)):
        return tensor(batch, dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return rebuilt(first, parts)
    if isinstance(first, Sequence):
        if len(set(map(len, batch))) != 1:
            raise RuntimeError("each element in list of batch should be of equal size")
        return rebuilt(first, [default_collate(column) for column in zip(*batch, strict=True)])
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {first.dtype if isinstance(first, np.ndarray) else type(first)}"
    )
