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

New: pairwise_distance, the three losses, their modules.
Try: triplet_margin_loss with swap=True, for an anchor and a positive that change places.
"""

import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule, softplus
from tinytorch.nn.nll import NllLoss
from tinytorch.ops import softmax as explicit
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.elementwise import require_tensors, sigmoid_of
from tinytorch.ops.norm import norm
from tinytorch.ops.reduction import wide

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def check_reduction(reduction: str) -> str:
    """`reduction` itself.

    Raises:
        ValueError: for anything but "mean", "sum" and "none".
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(losses: Tensor, reduction: str, weight: Tensor | None = None) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none"), each times its weight.

    Raises:
        ValueError: as check_reduction.
    """
    losses = losses if weight is None else losses * weight
    return losses if check_reduction(reduction) == "none" else getattr(losses, reduction)()


class Loss(Function):
    """l = f(x, t) for each pair of elements, and the mean or sum of all l: one node of the graph
    instead of one for each of subtraction, square, sum, ... x and t have one shape.

    `from_formulas` makes the subclasses.
    """

    saves = 0, 1

    def forward(ctx, x: Any, t: Any, reduction: str, *options: float) -> Any:
        ctx.save_for_backward(x, t)
        losses = ctx.value(ctx.xp, wide(x), wide(t), *options)
        ctx.options, ctx.count = options, losses.size if reduction == "mean" else 1
        losses = losses if reduction == "none" else losses.sum() / ctx.count
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, t = ctx.saved
        g = g if ctx.count == 1 else g / ctx.count
        gx = g * ctx.slope(ctx.xp, x, t, *ctx.options)
        if ctx.edges[1] is None:
            return gx
        return gx, -gx if ctx.slope_t is None else g * ctx.slope_t(ctx.xp, x, t)


def from_formulas(name: str, value: Callable, slope: Callable, slope_t: Any = None) -> type[Loss]:
    """The Loss with the formulas f, df/dx and df/dt; without the last one, f is of x - t."""
    formulas = {"value": value, "slope": slope, "slope_t": slope_t}
    return type(name, (Loss,), {key: f and staticmethod(f) for key, f in formulas.items()})


Mse = from_formulas("MseLoss", lambda xp, x, t: xp.square(x - t), lambda xp, x, t: 2 * (x - t))


def huber_value(xp: Any, x: Any, t: Any, delta: float, factor: float) -> Any:
    """d^2 / 2 for d = |x - t| below delta, a line beyond; all times a factor."""
    d = xp.abs(x - t)
    near = xp.clip(d, None, delta)
    return near * (d - 0.5 * near) * factor


def huber_slope(xp: Any, x: Any, t: Any, delta: float, factor: float) -> Any:
    """d below delta, and no more beyond; with the sign of x - t."""
    return xp.clip(x - t, -delta, delta) * factor


Huber = from_formulas("HuberLoss", huber_value, huber_slope)


SmoothL1 = from_formulas("SmoothL1Loss", huber_value, huber_slope)


def pair(input: Tensor, target: Tensor, integers: bool = False) -> tuple[Tensor, Tensor]:
    """Both as one type. Warns where their shapes differ: broadcasting is seldom what is meant.

    Raises:
        NotImplementedError: for integers, unless they are allowed.
    """
    a, b = tuple(target.array.shape), tuple(input.array.shape)
    if a != b:
        text = f"Using a target size {a} that is different to the input size {b}: is it meant?"
        warnings.warn(text, stacklevel=4)
        input, target = broadcast_tensors(input, target)
    input, target = operands(input, target)
    if not integers and not input.is_floating_point():
        raise NotImplementedError(f"this loss is not implemented for {input.dtype!r}")
    return input, target


@checked
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)^2.

    Raises:
        NotImplementedError: for integers.
    """
    return Mse.apply(*pair(input, target), check_reduction(reduction))


@checked
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    input, target = pair(input, target, integers=True)
    return reduced((input - target).abs(), reduction)


@checked
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 for d = |input - target| below delta; beyond, the line of slope delta that goes on
    (Huber, 1964).

    Raises:
        RuntimeError: unless delta is positive.
    """
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta: {delta}")
    return Huber.apply(*pair(input, target), check_reduction(reduction), delta, 1.0)


@checked
def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """huber_loss / beta: its slope is 1 beyond beta (Girshick, 2015). With beta 0 it is l1_loss.

    Raises:
        RuntimeError: for a negative beta.
    """
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta: {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    reduction = check_reduction(reduction)
    return SmoothL1.apply(*pair(input, target), reduction, beta, 1 / beta)


def check_target(input: Tensor, target: Tensor, one_type: bool) -> None:
    """Refuses a target that does not fit the input.

    Raises:
        ValueError: where the shapes differ.
        RuntimeError: where the types do not fit.
    """
    if target.shape != input.shape:
        raise ValueError(f"Target size {target.shape} must be that of the input, {input.shape}")
    if not target.is_floating_point() or (one_type and target.dtype is not input.dtype):
        raise RuntimeError(f"Found dtype {target.dtype!r} but expected {input.dtype!r}")


def entropy(xp: Any, x: Any, t: Any) -> Any:
    """-t log(x) - (1 - t) log(1 - x). Logarithms below -100 count as -100, so that a wrong 0 or 1
    costs much, and not inf."""
    return (t - 1) * xp.clip(xp.log1p(-x), -100, None) - t * xp.clip(xp.log(x), -100, None)


BinaryCrossEntropy = from_formulas(
    "BinaryCrossEntropy",
    entropy,
    lambda xp, x, t: (x - t) / xp.clip(x * (1 - x), 1e-12, None),
    lambda xp, x, t: xp.log1p(-x) - xp.log(x),
)


WithLogits = from_formulas(
    "BinaryCrossEntropyWithLogits",
    lambda xp, x, t: xp.log1p(xp.exp(-xp.abs(x))) + xp.maximum(x, 0) - t * x,
    lambda xp, x, t: sigmoid_of(x, xp) - t,
    lambda xp, x, t: -x,
)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-log of the probability that `input` gives to what `target` says: 1 (yes) or 0 (no).

    Raises:
        ValueError: where the shapes differ.
        RuntimeError: for other types, and for an input or a target outside of [0, 1].
    """
    reduction = check_reduction(reduction)
    check_target(input, target, one_type=True)
    for name, x in (("input", input.array), ("target", target.array)):
        if x.size and not (x.min() >= 0 and x.max() <= 1):
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    if weight is None:
        return BinaryCrossEntropy.apply(input, target, reduction)
    return reduced(BinaryCrossEntropy.apply(input, target, "none"), reduction, weight=weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), without the sigmoid that could become 0 or 1.

    `pos_weight` counts each yes that often.
    Raises:
        ValueError: where the shapes differ.
    """
    reduction = check_reduction(reduction)
    check_target(input, target, one_type=False)
    if weight is None and pos_weight is None:
        return WithLogits.apply(*operands(input, target), reduction)
    yes = softplus(-input, threshold=float("inf"))  # -logsigmoid(input)
    yes = yes if pos_weight is None else yes * (1 + (pos_weight - 1) * target)
    return reduced((1 - target) * input + yes, reduction, weight=weight)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input divided by its p-norm over `dim`: vectors of length 1 (by eps, if larger)."""
    return input / norm(input, p, dim, keepdim=True).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors: 1 for one direction, 0 for a right angle."""
    x1, x2 = broadcast_tensors(x1, x2)
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


class LossModule(FunctionModule):
    """A module that compares two inputs, such as an answer and the truth."""

    _inputs = 2

    def extra_repr(self) -> str:
        return ""


class MSELoss(LossModule, function=mse_loss):
    """mse_loss as a module."""


class L1Loss(LossModule, function=l1_loss):
    """l1_loss as a module."""


class HuberLoss(LossModule, function=huber_loss):
    """huber_loss as a module."""


class SmoothL1Loss(LossModule, function=smooth_l1_loss):
    """smooth_l1_loss as a module."""


class BCELoss(LossModule, function=binary_cross_entropy):
    """binary_cross_entropy as a module; `weight` is a buffer."""


class BCEWithLogitsLoss(LossModule, function=binary_cross_entropy_with_logits):
    """binary_cross_entropy_with_logits as a module; its tensors are buffers."""


class CosineSimilarity(LossModule, function=cosine_similarity):
    """cosine_similarity as a module."""


def implicit_dim(name: str, input: Tensor) -> int:
    """The dimension that programs of 2017 meant when they gave none; with a warning."""
    text = f"Implicit dimension choice for {name} has been deprecated: please give it dim=..."
    warnings.warn(text, stacklevel=3)
    return 0 if input.array.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input), divided by its sum over `dim`. Raises what tinytorch.softmax raises."""
    return explicit.softmax(input, implicit_dim("softmax", input) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of softmax. Raises what tinytorch.log_softmax raises."""
    dim = implicit_dim("log_softmax", input) if dim is None else dim
    return explicit.log_softmax(input, dim, dtype)


class Softmax(FunctionModule, function=softmax, options=1):
    """softmax as a module."""


class LogSoftmax(FunctionModule, function=log_softmax, options=1):
    """log_softmax as a module."""


@checked
def kl_div(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), where input is a logarithm: sum it for the divergence.

    "batchmean" is the sum divided by the first size, which is the mean of the definition.

    Raises:
        RuntimeError: for integers.
    """
    if not (input.is_floating_point() and target.is_floating_point()):
        raise RuntimeError("kl_div: Integral inputs not supported.")
    logs = target if log_target else (target + (target == 0)).log()  # 0 log 0 is 0
    losses = (target.exp() if log_target else target) * (logs - input)
    if reduction == "mean":
        warnings.warn("kl_div: by definition the mean is 'batchmean'; 'mean' is not", stacklevel=3)
    if reduction == "batchmean":
        return losses.sum() / (input.array.shape or (1,))[0]
    return reduced(losses, reduction)


def as_rows(input: Tensor) -> Tensor:
    """[n, c, ...] as [n * ..., c], and [c] as [1, c]."""
    shape, ndim = input.array.shape, input.array.ndim
    if ndim == 2:
        return input
    place = min(ndim - 1, 1)
    return input.movedim(place, -1).reshape(math.prod(shape) // max(shape[place], 1), shape[place])


def check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> tuple[int, ...]:
    """The shape of the losses.

    Raises:
        NotImplementedError: for integers.
        ValueError, RuntimeError: where the shapes do not fit.
    """
    shape, found = input.array.shape, target.array.shape
    if not input.is_floating_point():
        raise NotImplementedError(f"losses for classes are not implemented for {input.dtype!r}")
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    c, expected = shape[min(len(shape) - 1, 1)], shape[:1] + shape[2:] if shape[1:] else ()
    if weight is not None and weight.array.shape != (c,):
        raise RuntimeError(f"weight must have one element for each of {c} classes: {weight!r}")
    if found not in (shape, expected) and shape[1:] and found[:1] != shape[:1]:
        raise ValueError(f"batch sizes of input, {shape}, and target, {found}, differ")
    if found not in (shape, expected):
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(found)}")
    return expected


def chosen(
    rows: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    """(class of each row; how much each counts, 0 where it is ignored; None for 1 each).

    Raises:
        IndexError: for a class that does not exist.
        RuntimeError: for a target that is not int64 or uint8, and for a weight of another type
            than the input or one that requires a gradient.
    """
    if target.dtype not in (int64, uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype!r}")
    if weight is not None and weight.dtype is not rows.dtype:
        raise RuntimeError(f"expected scalar type {rows.dtype!r} but found {weight.dtype!r}")
    if weight is not None and weight.requires_grad:
        raise RuntimeError("the weight of classes cannot require a gradient")
    index, counts = (target if target.array.ndim == 1 else target.reshape(-1)).long(), None
    c, values = rows.array.shape[1], index.array
    # Viewed as unsigned, negative numbers are the largest: one maximum checks both bounds.
    if values.size and (0 <= ignore_index < c or values.view("u8").max() >= c):
        ignored = index == ignore_index
        wrong = ((values < 0) | (values >= c)) & ~ignored.array
        if wrong.any():
            raise IndexError(f"Target {int(values[wrong][0])} is out of bounds.")
        index, counts = index.masked_fill(ignored, 0), (~ignored).to(rows.dtype)
    if weight is not None:
        counts = weight[index] if counts is None else weight[index] * counts
    return index, counts


@checked
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-input at the right class: the negative log likelihood, if `input` are log probabilities.

    Shapes, weights and errors as in cross_entropy.
    """
    reduction = check_reduction(reduction)
    shape, rows = check_classes(input, target, weight), as_rows(input)
    index, counts = chosen(rows, target, weight, ignore_index)
    return NllLoss.apply(rows, index, counts, reduction, shape, True)


@checked
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log of the probability that softmax(input) gives to the right class.

    Args:
        input: [n, c], [n, c, ...] or [c]: any numbers, the higher the more probable.
        target: [n], [n, ...] or []: classes; or, in the shape of input, probabilities.
        weight: [c]: how much a row of each class counts. The mean divides by what all count.
        ignore_index: rows of this class do not count.
        label_smoothing: this share of the truth is spread evenly over all classes.
    Raises:
        IndexError: for a class that does not exist.
        RuntimeError, ValueError: where shapes, types or options do not fit.
    """
    reduction = check_reduction(reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    shape, rows = check_classes(input, target, weight), as_rows(input)
    c, one = rows.array.shape[1], 1 - label_smoothing
    if target.array.shape == input.array.shape:
        if not target.is_floating_point():
            raise RuntimeError("Expected floating point type for target with class probabilities")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        truth = as_rows(target) * one + label_smoothing / c
        truth = truth if weight is None else truth * weight
        return reduced(-(log_softmax(rows, 1) * truth).sum(1).reshape(shape), reduction)
    index, counts = chosen(rows, target, weight, ignore_index)
    loss = NllLoss.apply(rows, index, counts, reduction, shape, False)
    if not label_smoothing:
        return loss
    logs = log_softmax(rows, 1) if weight is None else log_softmax(rows, 1) * weight
    smooth = -logs.sum(1).masked_fill(target.reshape(-1) == ignore_index, 0)
    if reduction == "mean" and counts is not None:
        smooth = smooth.sum() / counts.sum()
    else:
        smooth = reduced(smooth.reshape(shape), reduction)
    return loss * one + smooth * (label_smoothing / c)


class KLDivLoss(LossModule, function=kl_div):
    """kl_div as a module."""


class NLLLoss(LossModule, function=nll_loss):
    """nll_loss as a module; `weight` is a buffer."""


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


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
