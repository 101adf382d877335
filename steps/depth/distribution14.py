"""Step distribution14: A register of divergences

A policy must not move too far in one update: so programs measure, after each, how far the new
probabilities are from the old ones, and stop early. Policies that choose are Categorical, and our
kl_divergence knows normal distributions only.

    KL(p, q) = the mean of log p(x) - log q(x) over draws x of p = sum_k p_k (log p_k - log q_k)

There is a formula for each pair of kinds, and a program may have kinds of its own. So the formulas
stand in a register, (kind of p, kind of q) -> function, and register_kl adds one. A subclass takes
the formula of the nearest class that has one.

The trap: a class that p never draws adds 0, although log 0 is -inf and 0 * inf is nan. One that
only q never draws makes the divergence infinite: p draws what is impossible for q.

New: register_kl, kl_divergence (of all kinds), formulas for Categorical, Bernoulli, Independent.
Try: return p * difference in `expected`, without the two masks.
"""

import importlib
from collections.abc import Callable

from tinytorch.core.tensor import Tensor
from tinytorch.distributions.bernoulli import Bernoulli
from tinytorch.distributions.categorical import Categorical
from tinytorch.distributions.distribution import Distribution
from tinytorch.distributions.independent import Independent
from tinytorch.distributions.normal import Normal
from tinytorch.distributions.normal import kl_divergence as kl_of_normals
from tinytorch.nn.modules.activation import softplus
from tinytorch.ops.gather import masked_fill

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


KL: dict[tuple[type, type], Callable] = {(Normal, Normal): kl_of_normals}


def register_kl(type_p: type, type_q: type) -> Callable:
    """Decorator: the function is the KL divergence of a type_p from a type_q."""

    def register(function: Callable) -> Callable:
        KL[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log p(x) - log q(x) over the draws x of p: 0 where p is q, and more elsewhere.

    Of the formulas that fit, that of the most special classes is taken.
    Raises:
        NotImplementedError: there is none.
    """
    fit = [(a, b) for a, b in KL if isinstance(p, a) and isinstance(q, b)]
    if not fit:
        raise NotImplementedError(f"no KL divergence of {type(p).__name__}, {type(q).__name__}")
    a, b = min(fit, key=lambda pair: (type(p).mro().index(pair[0]), type(q).mro().index(pair[1])))
    return KL[a, b](p, q)


def expected(p: Tensor, difference: Tensor, q: Tensor) -> Tensor:
    """p * difference of the logarithms: 0 where p is 0, and infinite where only q is 0."""
    return masked_fill(masked_fill(p * difference, q == 0, float("inf")), p == 0, 0.0)


@register_kl(Categorical, Categorical)
def kl_of_categoricals(p: Categorical, q: Categorical) -> Tensor:
    return expected(p.probs, p.logits - q.logits, q.probs).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def kl_of_bernoullis(p: Bernoulli, q: Bernoulli) -> Tensor:
    # log P(1) = -softplus(-logits), log P(0) = -softplus(logits)
    yes = expected(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs)
    return yes + expected(1 - p.probs, softplus(q.logits) - softplus(p.logits), 1 - q.probs)


@register_kl(Independent, Independent)
def kl_of_independents(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the events of the two have different numbers of dimensions")
    return p.sum_last(kl_divergence(p.base_dist, q.base_dist))


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    old, new = Categorical(tensor([0.5, 0.25, 0.25])), Categorical(tensor([0.25, 0.5, 0.25]))
    print(f"{kl_divergence(old, new).item():.4f}")  # -> 0.1733
    sure = Categorical(tensor([1.0, 0.0, 0.0]))
    print(kl_divergence(sure, old).item(), kl_divergence(old, sure).item())  # -> 0.6931471 inf
    print(kl_divergence(old, old).item())  # -> 0.0

    coins = Bernoulli(tensor([0.5, 1.0, 0.0])), Bernoulli(tensor([0.75, 1.0, 0.5]))
    print([round(x, 4) for x in kl_divergence(*coins).tolist()])  # -> [0.1438, 0.0, 0.6931]
    zeros, ones = tensor([0.0, 0.0]), tensor([1.0, 1.0])
    print(kl_divergence(Normal(ones, ones), Normal(zeros, ones)).tolist())  # -> [0.5, 0.5]
    pair = Independent(Normal(ones, ones), 1), Independent(Normal(zeros, ones), 1)
    print(kl_divergence(*pair).item())  # -> 1.0

    class Loaded(Bernoulli):
        """A kind of its own: it has the formula of Bernoulli, until it gets another."""

    print(round(kl_divergence(Loaded(0.5), Bernoulli(0.75)).item(), 4))  # -> 0.1438
    register_kl(Loaded, Bernoulli)(lambda p, q: "its own formula")
    print(kl_divergence(Loaded(0.5), Bernoulli(0.75)))  # -> its own formula
    for p, q in ((old, coins[0]), (pair[0], Independent(Normal(ones, ones), 0))):
        try:
            kl_divergence(p, q)
        except NotImplementedError as error:
            print(error)
    # -> no KL divergence of Categorical, Bernoulli
    # -> the events of the two have different numbers of dimensions
