"""Dropout: in training, let a random part of the units or of the channels fall silent."""

import warnings

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.random import rand


def check_probability(p: float) -> float:
    """p itself. Raises ValueError where it is not a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def drop_units(input: Tensor, shape: tuple, p: float, training: bool, inplace: bool) -> Tensor:
    """input times a mask of the given shape: 0 with probability p, and else 1 / (1 - p)."""
    if check_probability(p) == 0 or not training:
        return input
    mask = (rand(shape, device=input.device) >= p).to(input.dtype)
    mask = mask if p == 1 else mask.mul_(1 / (1 - p))
    return input.mul_(mask) if inplace else input * mask


@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p. The others are multiplied by 1 / (1 - p), so that the
    expected value stays the same, and nothing has to be done when the network is used."""
    return drop_units(input, input.array.shape, p, training, inplace)


class Dropout(Module):
    """dropout, in training only: eval() switches it off."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        self.p, self.inplace = check_probability(p), inplace

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


def drop_channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    """drop_units with a mask of the shape [n, channels, 1, ...], or [channels, 1, ...].

    Raises:
        RuntimeError: there are no channels.
    """
    shape, leading = input.array.shape, 2 if batched else 1
    if len(shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return drop_units(input, shape[:leading] + (1,) * (len(shape) - leading), p, training, inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, length] or [channels, length].

    Raises:
        RuntimeError: for another number of dimensions.
    """
    ndim = input.array.ndim
    if ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input.")
    return drop_channels(input, p, training, inplace, ndim == 3)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, height, width]."""
    if input.array.ndim != 4:
        warnings.warn(f"dropout2d expects a 4D input, not {input.array.ndim}D", stacklevel=2)
    return drop_channels(input, p, training, inplace, True)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, depth, height, width], or without n."""
    if input.array.ndim not in (4, 5):
        warnings.warn(f"dropout3d expects a 4D or 5D input, not {input.array.ndim}D", stacklevel=2)
    return drop_channels(input, p, training, inplace, input.array.ndim == 5)


class Dropout1d(Dropout):
    """dropout1d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """dropout2d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """dropout3d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout3d(input, self.p, self.training, self.inplace)
