"""Step distribution10: Independent: the numbers of one draw belong together

A policy moves six joints at once. Normal(mean, std) with tensors [32, 6] is a batch of 192
distributions, and log_prob gives 192 numbers. But 32 actions were taken, of six numbers each, and
the probability of one action is the product:

    log p(action) = the sum of the six logarithms

A sum over the last dimension is easily forgotten: the loss is then broadcast, or its mean is a
sixth. Independent(normal, 1) moves the last dimension from the batch to the event, and sums.

    Normal                batch_shape [32, 6]     event_shape []        log_prob [32, 6]
    Independent(..., 1)   batch_shape [32]        event_shape [6]       log_prob [32]

Draws, means and variances have the shape that they had. The trap is the entropy, which is a sum as
well: that of independent things adds up.

New: Independent. Moved: step distribution09, to uniform.py.
Try: Independent(normal, 2), and the shape of log_prob.
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Distribution
from tinytorch.ops.creation import zeros

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    from tinytorch.distributions.normal import Normal

    mean = zeros(32, 6)
    normal = Normal(mean, mean + 1)
    policy = Independent(normal, 1)
    print(normal.log_prob(mean).shape, policy.log_prob(mean).shape)
    # -> tinytorch.Size([32, 6]) tinytorch.Size([32])
    print(policy.batch_shape, policy.event_shape, policy.has_rsample)
    # -> tinytorch.Size([32]) tinytorch.Size([6]) True
    print(policy.log_prob(mean)[0].item(), policy.entropy()[0].item())  # -> -5.513631 8.513631
    print(policy.sample((5,)).shape, policy.rsample().shape)
    # -> tinytorch.Size([5, 32, 6]) tinytorch.Size([32, 6])
    print(policy.mean.shape, policy.variance.max().item(), policy.mode.equal(mean))
    # -> tinytorch.Size([32, 6]) 1.0 True
    print(Independent(Normal(zeros(2), zeros(2) + 1), 0))
    # -> Independent(Normal(loc: tinytorch.Size([2]), scale: tinytorch.Size([2])), 0)
    try:
        Independent(normal, 3)
    except ValueError as error:
        print(str(error)[-14:])  # -> actual 3 vs 2
