"""One of several classes, each with its probability."""

from typing import Any

from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import (
    Constraint,
    Distribution,
    clamp_probs,
    lazy,
    one_of,
    real,
)
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.sampling import multinomial
from tinytorch.ops.softmax import log_softmax


class Categorical(Distribution):
    """A class from 0 to K - 1. The last dimension of the parameter has the K classes.

    Args:
        probs: what the probabilities are in proportion to.
        logits: the logarithms of that. Give one of the two.
    Raises:
        ValueError: for both parameters or neither, and for one or a value that is out of range.
    """

    arg_constraints = {
        "probs": Constraint(
            "Simplex()", lambda p: (p >= 0).all(-1) & ((p.sum(-1) - 1).abs() < 1e-6)
        ),
        "logits": Constraint("IndependentConstraint(Real(), 1)", real.check),
    }

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        given = one_of(probs, logits)
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = log_softmax(logits, -1)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        self.param_shape, count = given.shape, given.shape[-1]
        self.support = Constraint(
            f"IntegerInterval(lower_bound=0, upper_bound={count - 1})",
            lambda x: (x % 1 == 0) & (x >= 0) & (x < count),
        )
        super().__init__(given.shape[:-1], validate_args)

    @lazy
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @lazy
    def logits(self) -> Tensor:
        return clamp_probs(self.probs).log()

    @property
    def mean(self) -> Tensor:
        """NaN: classes are names, not quantities."""
        return self.probs.new_full(self.batch_shape, float("nan"))

    variance = mean

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        rows, shape = self.probs.reshape(-1, self.param_shape[-1]), Size(sample_shape)
        return multinomial(rows, shape.numel(), True).T.reshape(shape + self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self.check_value(value)
        value, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum_k p_k log p_k. A class of probability 0 adds 0, although its logarithm is -inf."""
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(self.probs * logits).sum(-1)
