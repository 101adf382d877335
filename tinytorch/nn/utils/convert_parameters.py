"""All parameters as one vector, and back."""

from collections.abc import Iterable

from tinytorch.core.tensor import Tensor
from tinytorch.ops.joining import cat


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one row; the gradient flows through."""
    return cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Cuts the vector into pieces of the parameters' shapes, which become their data.

    The parameters are the vector's memory afterwards. Raises TypeError if it is not a tensor.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        param.data = vec.data[start : start + param.numel()].view_as(param)
        start += param.numel()
