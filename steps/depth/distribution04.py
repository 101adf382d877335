"""Step distribution04: Constraints: parameters and values are checked

log_prob of a class that does not exist fails somewhere inside gather, with an error about indices.
log_prob of class 0.7 does not fail: `long()` makes a 0 of it. A NaN in the logits, the usual sign
of a training that has blown up, is found only when multinomial complains about a sum. Each mistake
should be named where it is made.

So a distribution says what its parameters may be (`arg_constraints`) and what its values may be
(`support`). A constraint is a condition on each element, with a name to print:

    Simplex()                         no number below 0, and a sum of 1 along the last dimension
    IntegerInterval(0, K - 1)         0, 1, ..., K - 1
    Real()                            not NaN. NaN is the only number that is not equal to itself.

The names are those that PyTorch prints. As in PyTorch, arguments are checked by default, a wrong
one raises ValueError, and validate_args=False switches the checks off. The checks read all
elements once more, so a program that draws a million times may want that.

The trap is the word "valid": a value that can be broadcast is not yet one of the right shape. A
value of shape (2,) for a batch of 3 is refused; one of shape (3, 1) gives nine results.

Changed: Distribution, Categorical. New: Constraint, real.
Try: Categorical(tensor([0.0, 0.0])). Which numbers does the error show, and why?
"""

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tinytorch.autograd.modes import enable_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors
from tinytorch.ops.sampling import multinomial
from tinytorch.ops.softmax import log_softmax

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


class Distribution:
    """Base of all distributions. One object stands for a batch of independent distributions.

    A subclass says in `arg_constraints` and `support` what parameters and values may be, and writes
    `sample`, `log_prob` and `entropy`.

    Args:
        batch_shape: the shape of the batch. One draw has one value for each of its members.
        validate_args: False omits the checks of parameters and values.
    Raises:
        ValueError: for a parameter that does not satisfy its constraint.
    """

    event_shape = Size()
    arg_constraints: dict[str, Constraint] = {}
    support: Constraint
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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    # Without checks, a class that does not exist is taken for another.
    careless = Categorical(tensor([1.0, 3.0]), validate_args=False)
    print(careless.log_prob(tensor(0.7)).exp().item())  # -> 0.25

    def shown(error):
        """The message on one line, without the distribution."""
        what, _, rest = str(error).partition(" (Tensor")
        rest = rest.rpartition("constraint")[2].replace(", but found invalid values:\n", ": ")
        return (what + rest)[:88]

    careful = Categorical(tensor([1.0, 3.0]))
    nan = float("nan")
    for mistake in (
        lambda: Categorical(tensor([-1.0, 3.0])),
        lambda: Categorical(logits=tensor([nan, 0.0])),
        lambda: Categorical(tensor(1.0)),
        lambda: careful.log_prob(tensor(0.7)),
        lambda: careful.log_prob(tensor(2)),
        lambda: careful.log_prob(1),
        lambda: Categorical(tensor([[1.0, 3.0]] * 3)).log_prob(tensor([0, 1])),
    ):
        try:
            mistake()
        except ValueError as error:
            print(shown(error))
    # -> Expected parameter probs Simplex(): tensor([-0.5000,  1.5000])
    # -> Expected parameter logits IndependentConstraint(Real(), 1): tensor([nan, nan])
    # -> `probs` parameter must be at least one-dimensional.
    # -> Expected value argument IntegerInterval(lower_bound=0, upper_bound=1): 0.699999988079071
    # -> Expected value argument IntegerInterval(lower_bound=0, upper_bound=1): 2
    # -> The value argument to log_prob must be a Tensor
    # -> Value is not broadcastable with batch_shape: Shape mismatch: objects cannot be broadcast
