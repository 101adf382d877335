"""Yes or no."""

from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import (
    Distribution,
    boolean,
    broadcast_all,
    clamp_probs,
    lazy,
    one_of,
    real,
    unit_interval,
)
from tinytorch.nn.modules.loss import binary_cross_entropy_with_logits
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.sampling import bernoulli


class Bernoulli(Distribution):
    """1 with probability `probs`, else 0.

    Args:
        probs: the probability of 1.
        logits: log(probs / (1 - probs)). Give one of the two.
    Raises:
        ValueError: for both parameters or neither, and for one or a value that is out of range.
    """

    arg_constraints = {"probs": unit_interval, "logits": real}
    support = boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        (given,) = broadcast_all(one_of(probs, logits))
        setattr(self, "logits" if probs is None else "probs", given)
        super().__init__(given.shape, validate_args)

    @lazy
    def probs(self) -> Tensor:
        return self.logits.sigmoid()

    @lazy
    def logits(self) -> Tensor:
        probs = clamp_probs(self.probs)
        return probs.log() - (-probs).log1p()

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return bernoulli(self.probs.detach().expand(Size(sample_shape) + self.batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self.check_value(value)
        logits, value = broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
