"""All parameters as one vector, and back."""

from collections.abc import Iterable

from tinytorch.core.tensor import Tensor
from tinytorch.ops.joining import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one row; the gradient flows through."""
    return cat([param.reshape(-1) for param in parameters])
