"""Step distribution05: A draw with a gradient: rsample

REINFORCE (step distribution01) works for any reward, but it is noisy: it learns from the reward of
a draw, and not from how the reward would change with it. Step 54b wrote a draw as a function of the
parameters, with the chance outside:

    x = loc + scale * eps,   eps ~ N(0, 1):     dx/dloc = 1,   dx/dscale = eps

That is the reparametrisation (Kingma and Welling, 2013; Rezende and others, 2014). PyTorch calls it
rsample; sample is the same without a gradient. A class cannot be drawn this way: an integer cannot
change by a little.

The demo estimates one gradient in both ways, from the same number of draws. The true value is
known: the mean of x^2 is loc^2 + scale^2, so its derivative with respect to loc is 2 loc.

The density is exp(-z^2 / 2) / (scale sqrt(2 pi)) with z = (x - loc) / scale, and its logarithm is
written out: far from the mean, exp is 0 and its logarithm -inf. log_prob is the logarithm of a
density, not of a probability. It may be above 0, and the entropy below. A probability is that of
an interval: cdf(b) - cdf(a), by the error function.

Changed: Distribution draws and has a stddev. New: Normal, broadcast_all, positive. Moved:
Categorical, to tinytorch/distributions/categorical.py.
Try: let rsample use self.scale.detach(), and read what is missing.
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


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    # d/dloc and d/dscale of the mean of x^2: 2 loc = 3 and 2 scale = 1.
    loc, scale = tensor(1.5, requires_grad=True), tensor(0.5, requires_grad=True)

    def gradients(estimate, count, times=200):
        """Mean and spread, over many estimates, of the gradient from `count` draws."""
        manual_seed(0)
        found = []
        for _ in range(times):
            loc.grad = scale.grad = None
            estimate(Normal(loc, scale), count).mean().backward()
            found.append([loc.grad.item(), scale.grad.item()])
        found = tensor(found)
        return [[round(v, 2) for v in part.tolist()] for part in (found.mean(0), found.std(0))]

    def by_draws(d, count):  # step distribution01
        x = d.sample((count,))
        return x**2 * d.log_prob(x)

    print("REINFORCE", gradients(by_draws, 10))
    # -> REINFORCE [[3.07, 1.3], [2.54, 4.34]]
    print("rsample  ", gradients(lambda d, count: d.rsample((count,)) ** 2, 10))
    # -> rsample   [[2.98, 1.01], [0.35, 1.15]]

    d = Normal(tensor([0.0, 10.0]), 2)
    print(d)  # -> Normal(loc: tinytorch.Size([2]), scale: tinytorch.Size([2]))
    print(d.mean.tolist(), d.variance.tolist(), d.stddev.tolist(), d.mode.tolist())
    # -> [0.0, 10.0] [4.0, 4.0] [2.0, 2.0] [0.0, 10.0]
    print(d.sample((3, 4)).shape, d.has_rsample, Normal(loc, scale).sample().requires_grad)
    # -> tinytorch.Size([3, 4, 2]) True False

    # The logarithm of the density, also where the density itself is 0 in float32.
    print(Normal(0, 1).log_prob(tensor([0.0, 50.0])).tolist())
    # -> [-0.9189385175704956, -1250.9189453125]
    sharp = Normal(0.0, 0.01)
    print(f"{sharp.log_prob(tensor(0.0)).item():.2f} {sharp.entropy().item():.2f}")  # -> 3.69 -3.19

    within = Normal(0.0, 1.0).cdf(tensor([-1.0, 1.0]))
    print(f"{(within[1] - within[0]).item():.4f} of the draws are within one scale of loc")
    # -> 0.6827 of the draws are within one scale of loc

    class Coin(Distribution):
        """Somebody's own distribution, with no rsample."""

    for mistake in (
        lambda: Normal(0.0, -1.0),
        lambda: Normal("a", 1.0),
        lambda: Coin(Size()).rsample(),
    ):
        try:
            mistake()
        except (ValueError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {str(error)[:60]}")
    # -> ValueError: Expected parameter scale (Tensor of shape ()) of distributio
    # -> ValueError: Input arguments must all be instances of Number or Tensor
    # -> NotImplementedError: Coin has no rsample
