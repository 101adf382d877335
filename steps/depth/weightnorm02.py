"""Step weightnorm02: Local response normalisation

Before there was batch normalisation, AlexNet (Krizhevsky et al., 2012) had another idea, from the
nerves of an eye: a strong response damps its neighbours. At each place of the picture, a channel is
divided by the size of the channels beside it:

    y_c = x_c / (k + alpha m_c)^beta        m_c: the mean of x^2 over `size` channels around c

It has no parameters and no statistics of a batch, and the result hardly depends on them: networks
since VGG leave it out. Those that came before it need it to load their weights.

A window that slides over channels is `unfold` (step storage06) along dimension 1. Channels beyond
the border count as zeros, and as members of the mean. For an even size, one more of them is before
c.

The trap is in the papers: theirs has a sum in place of the mean. PyTorch divides alpha by size, so
an alpha of 1e-4 from the paper is 5e-4 here.

New: local_response_norm and its module. Moved: batch norm, to batchnorm.py and instancenorm.py.
Try: size 2. Which neighbour does channel 0 have?
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.nn.modules.batchnorm import NormModule
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.normalization import group_norm, layer_norm, rms_norm
from tinytorch.ops.storage import unfold

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    # Five channels at one place: the middle one is strong.
    x = tensor([1.0, 1.0, 10.0, 1.0, 1.0]).reshape(1, 5, 1)
    damped = LocalResponseNorm(3, alpha=0.3, beta=0.5)(x).flatten()
    print(damped)  # -> tensor([0.9129, 0.2988, 2.9881, 0.2988, 0.9129])
    # By hand, for the one beside it: k + alpha * mean of 1, 100 and 1.
    print(f"{1 / (1 + 0.3 * (1 + 100 + 1) / 3) ** 0.5:.4f}")  # -> 0.2988
    print(local_response_norm(x, 2, 2.0, 1.0).flatten())
    # -> tensor([0.5000, 0.3333, 0.0980, 0.0098, 0.3333])

    print(LocalResponseNorm(5))  # -> LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=1.0)
    try:
        local_response_norm(x[0], 2)
    except ValueError as error:
        print(error)  # -> Expected 3D or higher dimensionality, got 2 dimensions
