"""Normalisation within an item, as layers: last dimensions, groups, neighbours."""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.nn.modules.batchnorm import NormModule
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.normalization import group_norm, layer_norm, rms_norm
from tinytorch.ops.storage import unfold


class LayerNorm(NormModule):
    """layer_norm, with a weight and a bias of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine bias"

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.normalized_shape = as_shape((normalized_shape,))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        options = {"device": device, "dtype": dtype}
        self.make_affine(self.normalized_shape, elementwise_affine, bias, options)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(LayerNorm):
    """rms_norm, with a weight of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine"

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(NormModule):
    """group_norm, with a weight and a bias for each channel.

    Raises:
        ValueError: num_groups does not divide num_channels.
    """

    shown = "num_groups num_channels eps affine bias"

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by {num_groups}")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self.make_affine(num_channels, affine, bias, {"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


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
