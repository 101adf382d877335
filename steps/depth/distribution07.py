"""Step distribution07: Bernoulli: yes or no

A Categorical of two classes can say yes or no, but the two probabilities carry one number twice.
Pixels of a drawing, switches, edges of a graph: a network gives one logit for each,
z = log(p / (1 - p)), and p is its sigmoid.

The logarithm of the probability is the loss of step loss05, with its sign turned:

    log_prob(y) = y log p + (1 - y) log(1 - p) = -binary_cross_entropy_with_logits(z, y)

and that is the reason to keep the logits. At z = 40 the sigmoid is exactly 1 in float32, and
log(1 - p) is -inf; from the logits it is -40. The entropy is the mean of -log_prob, and the loss is
linear in y: so the entropy is the loss with p in the place of y.

one_of, lazy and clamp_probs are those of Categorical, and the support is 0 and 1. `sample` draws
uniform numbers and compares them with p (bernoulli, step philox08). There is no rsample: a step
function has the slope 0.

Moved: Normal and kl_divergence, to tinytorch/distributions/normal.py. New: Bernoulli, boolean,
unit_interval.
Try: compute log_prob from probs in float32, for logits of 10, 20 and 40.
"""

import importlib
from collections.abc import Callable
from functools import cached_property
from numbers import Number
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor, tensor
from tinytorch.nn.modules.loss import binary_cross_entropy_with_logits
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors
from tinytorch.ops.sampling import bernoulli

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
boolean = Constraint("Boolean()", lambda x: (x == 0) | (x == 1))
unit_interval = Constraint(
    "Interval(lower_bound=0.0, upper_bound=1.0)", lambda x: (x >= 0) & (x <= 1)
)


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


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    # From a probability in float32, no is impossible; from the logit, it is improbable.
    z = tensor(40.0)
    no = Bernoulli(logits=z).log_prob(tensor(0.0))
    print((1 - z.sigmoid()).log().item(), no.item())  # -> -inf -40.0

    manual_seed(0)
    d = Bernoulli(tensor([0.0, 0.25, 1.0]))
    draws = d.sample((10000,))
    print(draws.shape, draws.mean(0))
    # -> tinytorch.Size([10000, 3]) tensor([0.0000, 0.2479, 1.0000])
    print(d.mean.tolist(), d.variance.tolist())  # -> [0.0, 0.25, 1.0] [0.0, 0.1875, 0.0]

    # The entropy is the mean of -log_prob.
    surprise = -d.log_prob(draws).mean(0)
    print(f"{surprise[1].item():.3f} {d.entropy()[1].item():.3f}")  # -> 0.560 0.562
    print(Bernoulli(0.5))  # -> Bernoulli(probs: 0.5)

    # REINFORCE on switches: reward for each that is on, but only if not all are.
    logits = tensor([0.0, 0.0, 0.0], requires_grad=True)
    for _ in range(2000):
        d = Bernoulli(logits=logits)
        on = d.sample()
        reward = on.sum() if on.sum() < 3 else tensor(0.0)
        logits.grad = None
        (-(reward - 1) * d.log_prob(on).sum()).backward()
        logits.data -= 0.05 * logits.grad
    print([round(p, 1) for p in d.probs.tolist()])  # -> [1.0, 1.0, 0.0]

    for mistake in (lambda: Bernoulli(1.5), lambda: Bernoulli(0.5).log_prob(tensor(0.5))):
        try:
            mistake()
        except ValueError as error:
            print(str(error).rpartition(" constraint ")[2].replace("\n", " "))
    # -> Interval(lower_bound=0.0, upper_bound=1.0), but found invalid values: 1.5
    # -> Boolean(), but found invalid values: 0.5
