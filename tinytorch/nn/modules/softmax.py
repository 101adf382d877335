"""softmax and log_softmax as functions and as modules."""

import warnings
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.ops import softmax as explicit


def implicit_dim(name: str, input: Tensor) -> int:
    """The dimension that programs of 2017 meant when they gave none; with a warning."""
    text = f"Implicit dimension choice for {name} has been deprecated: please give it dim=..."
    warnings.warn(text, stacklevel=3)
    return 0 if input.array.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input), divided by its sum over `dim`. Raises what tinytorch.softmax raises."""
    return explicit.softmax(input, implicit_dim("softmax", input) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of softmax. Raises what tinytorch.log_softmax raises."""
    dim = implicit_dim("log_softmax", input) if dim is None else dim
    return explicit.log_softmax(input, dim, dtype)


class Softmax(FunctionModule, function=softmax, options=1):
    """softmax as a module."""


class LogSoftmax(FunctionModule, function=log_softmax, options=1):
    """log_softmax as a module."""
