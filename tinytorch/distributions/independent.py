"""Distributions whose numbers belong together: a batch becomes one event."""

from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Distribution


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
