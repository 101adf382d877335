"""Step loss18: Catalogue: losses for pairs and triplets

Sometimes there is no target for one item, but two items are known to belong together: two photos of
a face, two translations of a sentence. These losses compare the vectors of such items. They are
short formulas; skim them, and remember that they exist.

    triplet_margin_loss     max(0, d(a, p) - d(a, n) + m)    p must be nearer than n, by a margin m
    cosine_embedding_loss   1 - c, or max(0, c - m)          c: the cosine; the target is 1 or -1
    margin_ranking_loss     max(0, m - t (x1 - x2))          x1 should be larger if t is 1

Because of max(0, ...) a pair that is good enough has no gradient. Without it, the loss would go on
pushing different items apart, and pairs that are still too near would have less influence.

The trap: |x1 - x2| has no derivative if both are equal. A small eps, added to each difference,
avoids that point; so pairwise_distance(x, x) is not quite 0.

New: pairwise_distance, the three losses, their modules. Moved: the others, to class_loss.py.
Try: triplet_margin_loss with swap=True, for an anchor and a positive that change places.
"""

import importlib

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.loss import LossModule, cosine_similarity, reduced
from tinytorch.ops.elementwise import require_tensors
from tinytorch.ops.norm import norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    anchor = tensor([[0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    near, far = tensor([[0.0, 1.0], [0.0, 1.0]]), tensor([[0.0, 1.5], [0.0, 9.0]])
    print(PairwiseDistance()(anchor, near), pairwise_distance(near, near)[0].item() > 0)
    # -> tensor([1.0000, 1.0000], grad_fn=<NormBackward0>) True
    loss = triplet_margin_loss(anchor, near, far, reduction="none")
    print(loss.tolist())  # -> [0.5, 0.0]
    # The second triplet is good enough: no gradient. The first one feels both pulls, which cancel.
    print((grad(loss.sum(), anchor)[0] + 0).tolist())  # -> [[0.0, 0.0], [0.0, 0.0]]
    print(TripletMarginLoss(margin=2.0, swap=True)(anchor, near, far).item())  # -> 1.25

    x, y = tensor([[1.0, 0.0], [1.0, 0.0]]), tensor([[1.0, 1.0], [1.0, 1.0]])
    print(CosineEmbeddingLoss(margin=0.5, reduction="none")(x, y, tensor([1, -1])))
    # -> tensor([0.2929, 0.2071])
    print(MarginRankingLoss(margin=0.1)(tensor([2.0, 2.0]), tensor([1.0, 1.0]), tensor([1, -1])))
    # -> tensor(0.5500)

    for wrong in (
        lambda: triplet_margin_loss(x, y, y[0]),
        lambda: triplet_margin_loss(x, y, y, margin=0.0),
        lambda: cosine_embedding_loss(x, y, tensor(1)),
        lambda: margin_ranking_loss(x, y, tensor([1, 1])),
    ):
        try:
            wrong()
        except (ValueError, RuntimeError) as error:
            print(error)
    # -> triplet_margin_loss: the inputs differ in their number of dimensions
    # -> margin must be greater than 0, got 0.0
    # -> 0D target tensor expects 1D input tensors
    # -> margin_ranking_loss: inputs of as many dimensions expected: [[2, 2], [2, 2], [2]]
