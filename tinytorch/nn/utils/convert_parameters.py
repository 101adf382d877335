"""All parameters as one vector, and back."""

from collections.abc import Iterable

from tinytorch.core.tensor import Tensor
from tinytorch.ops.joining import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one row; the gradient flows through."""
    return cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives each parameter its part of the vector as data. TypeError for what is no tensor."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        n = param.numel()
        param.data = vec[start : start + n].reshape(param.shape).detach()
        start += n
