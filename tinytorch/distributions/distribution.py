"""What all distributions share: shapes, drawing, and checks of parameters and values."""

from collections.abc import Callable
from functools import cached_property
from numbers import Number
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor, tensor
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors


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
