"""Step distribution03: Many distributions, many draws: batch_shape and sample_shape

Two counts are easily confused. A policy for 32 positions holds 32 distributions, one for
each row of its logits. And of each, a program may want 5 draws. Categorical(logits).sample() of the
step before handles the first and has no way to ask for the second.

    batch_shape      the distributions in one object: logits (32, 7) are 32 of them
    event_shape      the shape of one value: (), as a class is one number
    sample_shape     what sample(sample_shape) is asked for
    a draw has       the shape sample_shape + batch_shape: sample((5,)) has (5, 32)
    log_prob(draw)   the same shape: one logarithm for each value

log_prob takes whatever can be broadcast with the batch: one value for all, or a column of values.
The classes are another matter. gather does not broadcast, so both sides are broadcast first, and
the copies of `value` along the classes are dropped again: value[..., :1].

Code that all distributions share moves to a base class, Distribution. So far that is little: the
shapes, and how an object prints. As in PyTorch, it prints the shapes of the parameters that are
there; arg_constraints names them (step distribution04 says what they must satisfy). `mode` is the
most probable class. There is no mean of classes, which are names: NaN.

The trap: multinomial draws along the last dimension, so the draws of a batch come as (batch, n).
They must be transposed before they are reshaped. Without `.T` the shape is right, and the values
stand in the wrong places.

Changed: Categorical. New: Distribution.
Try: leave out `.T` in sample.
"""

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tinytorch.autograd.modes import enable_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Size, Tensor
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.sampling import multinomial
from tinytorch.ops.softmax import log_softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Distribution:
    """Base of all distributions. One object stands for a batch of independent distributions.

    A subclass names its parameters in `arg_constraints`, and writes `sample`, `log_prob` and
    `entropy`.

    Args:
        batch_shape: the shape of the batch. One draw has one value for each of its members.
    """

    event_shape = Size()
    arg_constraints: dict[str, Any] = {}

    def __init__(self, batch_shape: Size):
        self.batch_shape = batch_shape

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
    """

    arg_constraints = {"probs": None, "logits": None}

    def __init__(self, probs: Any = None, logits: Any = None):
        given = one_of(probs, logits)
        if probs is None:
            self.logits = log_softmax(logits, -1)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        self.param_shape = given.shape
        super().__init__(given.shape[:-1])

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
        value, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum_k p_k log p_k. A class of probability 0 adds 0, although its logarithm is -inf."""
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(self.probs * logits).sum(-1)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    # Three policies in one object: the first never takes class 1, the last one always does.
    manual_seed(0)
    policies = Categorical(tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    print(policies, policies.batch_shape, policies.event_shape)
    # -> Categorical(probs: tinytorch.Size([3, 2])) tinytorch.Size([3]) tinytorch.Size([])

    draws = policies.sample((1000,))
    print(draws.shape, draws.float().mean(0))
    # -> tinytorch.Size([1000, 3]) tensor([0.0000, 0.4660, 1.0000])
    print(policies.sample().shape, policies.sample((2, 4)).shape)
    # -> tinytorch.Size([3]) tinytorch.Size([2, 4, 3])

    # log_prob broadcasts: one value for all, one for each, all values for each.
    print(policies.log_prob(tensor(1)).exp())  # -> tensor([1.1921e-07, 5.0000e-01, 1.0000e+00])
    print(policies.log_prob(tensor([0, 0, 1])).exp())  # -> tensor([1.0000, 0.5000, 1.0000])
    print(policies.log_prob(tensor([[0], [1]])).shape, policies.entropy().shape)
    # -> tinytorch.Size([2, 3]) tinytorch.Size([3])

    print(policies.mode.tolist(), policies.mean.tolist())  # -> [0, 0, 1] [nan, nan, nan]

    # The logits are there since log_prob has read them. A parameter of one number prints its value.
    print(policies)
    # -> Categorical(probs: tinytorch.Size([3, 2]), logits: tinytorch.Size([3, 2]))
    print(Categorical(logits=tensor([7.0])))  # -> Categorical(logits: 0.0)
