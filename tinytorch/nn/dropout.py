"""Dropout: in training, let a random part of the units fall silent."""

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
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
