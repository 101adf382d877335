"""Layers that join dimensions into one, and divide one again."""

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module


class Flatten(Module):
    """Makes the dimensions from start_dim to end_dim one: [n, c, h, w] -> [n, c * h * w]."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Gives dimension `dim` several sizes: Unflatten(1, (8, 8)) makes [n, 64] [n, 8, 8]."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]):
        super().__init__()
        if not all(isinstance(n, int) for n in (dim, *tuple(unflattened_size))):
            raise TypeError(f"dim and sizes must be ints, got {dim} and {unflattened_size}")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
