"""Local response normalisation: a channel is divided by the size of its neighbours."""

from tinytorch.core.tensor import Tensor
from tinytorch.nn.activation import FunctionModule
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.storage import unfold


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha m)^beta, m the mean of the squares of `size` neighbouring channels.

    input: [n, channels, ...]; channels beyond the borders count as 0 (Krizhevsky et al., 2012).
    Raises:
        ValueError: the input has fewer than three dimensions.
    """
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality, got {input.ndim} dimensions")
    borders = (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2)
    squares = unfold(constant_pad(input * input, borders), 1, size, 1).mean(-1)
    return input / (squares * alpha + k) ** beta


class LocalResponseNorm(FunctionModule, function=local_response_norm):
    """local_response_norm as a module."""

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
