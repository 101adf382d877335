"""Step distribution06: The Kullback-Leibler divergence of two normal distributions

A variational autoencoder wants the codes of all pictures to be spread as N(0, 1), and an algorithm
of control wants its new policy to stay near the old one. Both need a number that says how far one
distribution is from another. The mean of the difference of their logarithms is such a number, the
Kullback-Leibler divergence:

    KL(p, q) = the mean of log p(x) - log q(x) over draws x of p

It can be measured with sample and log_prob. But the estimate is noisy, and for two normal
distributions the integral is known:

    KL = (r^2 + ((m_p - m_q) / s_q)^2 - 1 - log r^2) / 2,     r = s_p / s_q

For N(m, s) against N(0, 1) it is the term (s^2 + m^2 - 1 - log s^2) / 2 of every VAE.

The trap: it is not symmetric. KL(p, q) is large where p has draws that q calls impossible. A narrow
p inside a wide q costs little; a wide p around a narrow q costs a lot.

New: kl_divergence, between two Normal. PyTorch has a table with many pairs.
Try: Normal(0.0, 0.01) and Normal(1.0, 0.01), in both orders, and then with scales of 0.01 and 1.
"""

import importlib
import math
from collections.abc import Callable
from functools import cached_property
from numbers import Number
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor, tensor
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors
from tinytorch.ops.erf import erf
from tinytorch.ops.random import randn_like

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Constraint:
    """A condition on values: `check` gives True or False for each, `says` is PyTorch's word."""

    def __init__(self, says: str, check: Callable[[Tensor], Tensor]):
        self.says, self.check = says, check

    def __repr__(self) -> str:
        return self.says


real = Constraint("Real()", lambda x: x == x)  # NaN is not equal to itself
positive = Constraint("GreaterThan(lower_bound=0.0)", lambda x: x > 0)


class Distribution:
    """Base of all distributions. One object stands for a batch of independent distributions.

    A subclass says in `arg_constraints` and `support` what parameters and values may be, and writes
    `rsample` or `sample`, `log_prob`, `entropy`, `mean` and `variance`.

    Args:
        batch_shape: the shape of the batch. One draw has one value for each of its members.
        validate_args: False omits the checks of parameters and values.
    Raises:
        ValueError: for a parameter that does not satisfy its constraint.
    """

    has_rsample = False
    event_shape = Size()
    arg_constraints: dict[str, Constraint] = {}
    support = real
    _validate_args = True

    def __init__(self, batch_shape: Size, validate_args: bool | None = None):
        self.batch_shape = batch_shape
        if validate_args is not None:
            self._validate_args = validate_args
        for name, constraint in self.arg_constraints.items():
            if name in vars(self):
                self.require(f"parameter {name}", getattr(self, name), constraint)

    def require(self, what: str, value: Tensor, constraint: Constraint) -> None:
        """Raises ValueError where values are checked and one does not satisfy the constraint."""
        if self._validate_args and not constraint.check(value.detach()).all():
            raise ValueError(
                f"Expected {what} (Tensor of shape {tuple(value.shape)}) of distribution {self} to "
                f"satisfy the constraint {constraint}, but found invalid values:\n{value}"
            )

    def check_value(self, value: Any) -> None:
        """Raises ValueError unless `value` is a tensor of possible results."""
        if self._validate_args and not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        try:
            broadcast_shapes(getattr(value, "shape", ()), self.batch_shape + self.event_shape)
        except RuntimeError as error:
            raise ValueError(f"Value is not broadcastable with batch_shape: {error}") from None
        self.require("value argument", value, self.support)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Independent draws, of shape sample_shape + batch_shape. No gradient goes through them."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws through which a gradient reaches the parameters. Not all distributions have it."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample")

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def __repr__(self) -> str:
        kept = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        says = [f"{k}: {v.item() if v.numel() == 1 else v.shape}" for k, v in kept.items()]
        return f"{type(self).__name__}({', '.join(says)})"


def lazy(method: Callable) -> cached_property:
    """A property that is computed when it is first read; with its graph, even under no_grad."""
    return cached_property(enable_grad()(method))


def one_of(probs: Any, logits: Any) -> Any:
    """The parameter that was given. ValueError unless it is exactly one."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return logits if probs is None else probs


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities at least eps away from 0 and 1, so that their logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; a number takes the type of a tensor beside it.

    Raises:
        ValueError: for anything else.
    """
    if not all(isinstance(value, (Number, Tensor)) for value in values):
        raise ValueError("Input arguments must all be instances of Number or Tensor")
    like = next((value for value in values if isinstance(value, Tensor)), tensor(0.0))
    return broadcast_tensors(
        *(v if isinstance(v, Tensor) else like.new_tensor(float(v)) for v in values)
    )


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


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    p, q = Normal(1.0, 0.5), Normal(0.0, 1.0)
    for count in (10, 1000, 100000):
        x = p.sample((count,))
        print(count, round((p.log_prob(x) - q.log_prob(x)).mean().item(), 2))
    # -> 10 1.18
    # -> 1000 0.76
    # -> 100000 0.82
    by_hand = (0.5**2 + 1.0**2 - 1 - math.log(0.5**2)) / 2
    print(f"{by_hand:.4f} {kl_divergence(p, q).item():.4f}")  # -> 0.8181 0.8181
    print(f"the other way round: {kl_divergence(q, p).item():.2f}")  # -> the other way round: 2.81

    # The gradient pulls a batch of codes to N(0, 1), each number for itself.
    mean, log_std = tensor([3.0, -1.0, 0.0]), tensor([0.0, 1.0, -2.0])
    for x in (mean, log_std):
        x.requires_grad_()
    for _ in range(200):
        mean.grad = log_std.grad = None
        loss = kl_divergence(Normal(mean, log_std.exp()), Normal(0.0, 1.0)).sum()
        loss.backward()
        mean.data -= 0.1 * mean.grad
        log_std.data -= 0.1 * log_std.grad
    print(loss.item() < 1e-4, [abs(round(v, 2)) for v in mean.tolist() + log_std.tolist()])
    # -> True [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]

    try:
        kl_divergence(p, Distribution(Size()))
    except NotImplementedError as error:
        print(error)  # -> no KL divergence of Normal, Distribution
