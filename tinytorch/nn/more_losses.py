"""Losses that compare pairs and triplets: how near two items are, and how near they should be."""

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.loss import LossModule, cosine_similarity, reduced
from tinytorch.ops.elementwise import require_tensors
from tinytorch.ops.norm import norm


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension. (eps: at 0 the norm has no slope.)"""
    require_tensors("pairwise_distance", (x1, x2))
    return norm(x1 - x2 + eps, p, -1, keepdim)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, *, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target (input1 - input2)): target 1 wants the first to be larger, -1 less.

    Raises:
        RuntimeError: the numbers of dimensions differ.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        shapes = [list(x.shape) for x in (input1, input2, target)]
        raise RuntimeError(f"margin_ranking_loss: inputs of as many dimensions expected: {shapes}")
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@checked
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the pairwise_distance.

    With `swap`, d(positive, negative) counts where it is smaller (Balntas et al., 2016).
    Raises:
        RuntimeError: the numbers of dimensions differ.
        ValueError: the margin is not positive.
    """
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError("triplet_margin_loss: the inputs differ in their number of dimensions")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = (pairwise_distance(anchor, x, p, eps) for x in (positive, negative))
    far = far.minimum(pairwise_distance(positive, negative, p, eps)) if swap else far
    return reduced((near - far + margin).clamp(min=0), reduction)


@checked
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, *, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - c where the target is 1, max(0, c - margin) where it is -1; c is the cosine.

    Raises:
        RuntimeError: there is not one target for each pair of vectors.
    """
    shape = input1.shape if input1.ndim > input2.ndim else input2.shape
    if not 0 < len(shape) < 3 or target.ndim != len(shape) - 1:
        raise RuntimeError(f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors")
    c = cosine_similarity(input1, input2, -1)
    losses = (1 - c) * (target == 1) + (c - margin).clamp(min=0) * (target == -1)
    return reduced(losses, reduction)


class PairwiseDistance(LossModule, function=pairwise_distance):
    """pairwise_distance as a module."""


class MarginRankingLoss(LossModule, function=margin_ranking_loss):
    """margin_ranking_loss as a module."""

    _inputs = 3


class CosineEmbeddingLoss(LossModule, function=cosine_embedding_loss):
    """cosine_embedding_loss as a module."""

    _inputs = 3


class TripletMarginLoss(LossModule, function=triplet_margin_loss):
    """triplet_margin_loss as a module."""

    _inputs = 3
