"""The uniform distribution."""

from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Constraint, Distribution, broadcast_all, real
from tinytorch.ops.random import rand


class Uniform(Distribution):
    """Every number from `low` on and below `high` is equally likely.

    Raises:
        ValueError: `low` is not below `high`.
    """

    has_rsample = True
    arg_constraints = {"low": real, "high": real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low >= high")

    @property
    def support(self) -> Constraint:
        says = f"Interval(lower_bound={self.low}, upper_bound={self.high})"
        return Constraint(says, lambda x: (x >= self.low) & (x <= self.high))

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape) + self.batch_shape
        eps = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + eps * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self.check_value(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
