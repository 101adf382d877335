"""The tensors in arguments and results of functions, however deep."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from tinytorch.core.tensor import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a value: itself, or those in tuples, lists, sets, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, set)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in(tuple(vars(value).values()))
