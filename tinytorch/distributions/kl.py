"""How far two distributions differ: a formula for each pair of kinds."""

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
