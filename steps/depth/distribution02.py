"""Step distribution02: Categorical from probabilities or logits

Some networks end with a softmax, and their programs say Categorical(probs). Two mistakes are easily
made.

A probability of 0 has the logarithm -inf, and 0 * -inf is NaN. So an entropy that is computed as
(p * p.log()).sum() is NaN as soon as one move is forbidden. Its gradient is NaN, and after one step
all weights are. Two remedies, for the two ways in which a zero arrives:

    probs with a 0        take the logarithm of p clamped to [eps, 1 - eps]
    logits with a -inf    (a masked move) clamp them in the entropy: 0 * (-3.4e38) is 0

The other parameter is computed only when it is read, and then kept: functools.cached_property. That
is the second trap. sample() is often called under no_grad, and reads probs. What is computed there
has no graph, and a later loss would read the kept value: no gradient arrives. So `lazy` computes
under enable_grad.

PyTorch does both the same way. It calls the decorator lazy_property.

Changed: Categorical takes probs or logits. New: lazy, one_of, clamp_probs.
Try: make `lazy` a plain cached_property, and find the line of the demo that notices.
"""

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tinytorch.autograd.modes import enable_grad
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor
from tinytorch.ops.sampling import multinomial
from tinytorch.ops.softmax import log_softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


class Categorical:
    """A class from 0 to K - 1. The last dimension of the parameter has the K classes.

    Args:
        probs: what the probabilities are in proportion to.
        logits: the logarithms of that. Give one of the two.
    """

    def __init__(self, probs: Any = None, logits: Any = None):
        given = one_of(probs, logits)
        if probs is None:
            self.logits = log_softmax(given, -1)
        else:
            self.probs = given / given.sum(-1, keepdim=True)

    @lazy
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @lazy
    def logits(self) -> Tensor:
        return clamp_probs(self.probs).log()

    def sample(self) -> Tensor:
        return multinomial(self.probs, 1, True).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.logits.gather(-1, value.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum_k p_k log p_k. A class of probability 0 adds 0, although its logarithm is -inf."""
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(self.probs * logits).sum(-1)


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    # A forbidden move, by hand: the entropy is not a number.
    p = tensor([0.5, 0.5, 0.0])
    print(-(p * p.log()).sum().item())  # -> nan

    for policy in (Categorical(tensor([2.0, 2.0, 0.0])), Categorical(logits=p.log())):
        print(policy.probs.tolist(), policy.entropy().item())
    # -> [0.5, 0.5, 0.0] 0.6931471824645996
    # -> [0.5, 0.5, 0.0] 0.6931471824645996

    # The gradient is finite, too.
    p.requires_grad_()
    policy = Categorical(p)
    policy.log_prob(tensor(2)).backward()
    print(p.grad.tolist())  # -> [0.0, 0.0, 0.0]

    # probs are computed under no_grad, by sample, and still have their graph.
    logits = tensor([0.5, 0.0], requires_grad=True)
    policy = Categorical(logits=logits)
    with no_grad():
        print(policy.sample().shape, "probs" in vars(policy))  # -> tinytorch.Size([]) True
    policy.probs[0].backward()
    print(f"{logits.grad[0].item():.4f}")  # -> 0.2350

    for arguments in ({}, {"probs": p, "logits": logits}):
        try:
            Categorical(**arguments)
        except ValueError as error:
            print(error)
    # -> Either `probs` or `logits` must be specified, but not both.
    # -> Either `probs` or `logits` must be specified, but not both.
