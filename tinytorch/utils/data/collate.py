"""From a list of samples to one batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, as_tensor, tensor
from tinytorch.ops.joining import stack


def default_collate(batch: list[Any]) -> Any:
    """Samples of one kind as a batch: tensors, arrays and numbers become one tensor with a new
    first dimension, texts a list; dicts, tuples and lists go item by item.

    TypeError for other kinds, RuntimeError where the lengths or shapes differ.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, (np.ndarray, np.generic)) and first.dtype.kind not in "SUO":
        return as_tensor(np.stack(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(list(column)) for column in zip(*batch, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first)}"
    )
