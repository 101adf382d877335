"""The uniform distribution, and distributions whose members belong together."""

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


class Independent(Distribution):
    """One distribution of vectors, from a batch of distributions of numbers: the last dimensions of
    the batch become those of one event, whose probability is the product of theirs.

    Raises:
        ValueError: the batch has fewer dimensions.
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ):
        base, n = base_distribution, reinterpreted_batch_ndims
        if n > len(base.batch_shape):
            raise ValueError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{n} vs {len(base.batch_shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base, n
        self.has_rsample = base.has_rsample
        split = len(base.batch_shape) - n
        self.event_shape = Size(base.batch_shape[split:]) + base.event_shape
        super().__init__(Size(base.batch_shape[:split]), validate_args)

    def sum_last(self, x: Tensor) -> Tensor:
        """The sum over the dimensions of an event."""
        n = self.reinterpreted_batch_ndims
        return x.sum(tuple(range(-n, 0))) if n else x

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.sum_last(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self.sum_last(self.base_dist.entropy())

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
