"""The normal distribution, and how far two of them differ."""

import math
from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Distribution, broadcast_all, positive, real
from tinytorch.ops.erf import erf
from tinytorch.ops.random import randn_like


class Normal(Distribution):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    Raises:
        ValueError: for a scale that is not above 0, and for what is not a tensor or a number.
    """

    has_rsample = True
    arg_constraints = {"loc": real, "scale": positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """loc + scale * eps. Only eps is random, so that a gradient reaches loc and scale.

        Source: Kingma and Welling, Auto-Encoding Variational Bayes, 2013 (reparametrisation).
        """
        shape = Size(sample_shape) + self.batch_shape
        return self.loc + self.scale * randn_like(self.loc.detach().expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self.check_value(value)
        z = (value - self.loc) / self.scale
        return -0.5 * z**2 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a draw that is at most `value`."""
        self.check_value(value)
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 * math.log(2 * math.pi * math.e)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log p(x) - log q(x) over the draws x of p: 0 where p is q, and more elsewhere.

    Raises:
        NotImplementedError: unless both are Normal.
    """
    if not (isinstance(p, Normal) and isinstance(q, Normal)):
        raise NotImplementedError(f"no KL divergence of {type(p).__name__}, {type(q).__name__}")
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
