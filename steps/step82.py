"""Step 82: How wrong is a class?

A classifier gives one number for each class, a logit. softmax turns the logits into probabilities,
and the loss is -log of the probability of the right class: the yes or no of step 81, for many
classes. Step 67 wrote it as log_softmax and an index. Here it is one Function, because its gradient
is so simple that everything in between can be left out:

    l = log(exp(x_1) + ... + exp(x_c)) - x_t         dl/dx_i = softmax(x)_i - [i = t]

What the network says, minus what is true. For a second derivative it must be a function of x again:
on Tensors, backward computes the softmax once more (step 33 explains the two kinds of backward).

The trap: cross_entropy expects logits, which can be any numbers. A Softmax layer in front of it
means that the softmax is taken twice. The loss looks fine and goes down, but it can never come near
0, and the gradients are small.

What people need besides: a weight for each class, if some are rare; ignore_index for rows that do
not count, such as padding; label_smoothing, which spreads a part of the truth over all classes; and
targets that are themselves probabilities. The mean divides by the total weight of the rows, not by
their number, as in PyTorch. A class that does not exist raises an error, and never picks up the
number of another: in NumPy, index -1 would be the last class.

nll_loss is the part after log_softmax; kl_div compares two distributions (by definition its mean is
"batchmean"; "mean" is not). gaussian_nll_loss is for a network that gives a number and says how
sure it is: the smaller the variance it claims, the more it pays for being wrong.

New: the losses for classes and distributions, one_hot, and their modules. Moved: clipping, to
tinytorch/nn/utils/clip_grad.py.
Try: in step 67 give log_softmax the logits.softmax(1), and compare the digits after 20 epochs.
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.nn.activation import FunctionModule, softplus
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.norm import norm
from tinytorch.ops.reduction import sum_rows, wide
from tinytorch.ops.softmax import Softmax, log_softmax, minus_max

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def reduce(losses: Tensor, reduction: str, weight: Tensor | None = None) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none"), each times its weight if it has
    one. ValueError for other words."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    losses = losses if weight is None else losses * weight
    return losses if reduction == "none" else getattr(losses, reduction)()


def difference(input: Tensor, target: Tensor, integers: bool = False) -> Tensor:
    """input - target. A warning where their shapes differ: broadcasting is seldom what is meant.

    NotImplementedError for integers, unless they are allowed.
    """
    d, a, b = input - target, tuple(target.array.shape), tuple(input.array.shape)
    if a != b:
        text = f"Using a target size {a} that is different to the input size {b}"
        warnings.warn(text + ": check that the broadcasting is meant.", stacklevel=3)
    if not integers and not d.is_floating_point():
        raise NotImplementedError(f"this loss is not implemented for {d.dtype!r}")
    return d


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)^2. NotImplementedError for integers."""
    d = difference(input, target)
    return reduce(d * d, reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return reduce(difference(input, target, integers=True).abs(), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 for d = |input - target| below delta; beyond, the line of slope delta that goes on
    (Huber, 1964). RuntimeError unless delta is positive."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta: {delta}")
    d = difference(input, target).abs()
    near = d.clamp(max=delta)
    return reduce(near * (d - 0.5 * near), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """huber_loss / beta: its slope is 1 beyond beta (Girshick, 2015). With beta 0 it is l1_loss.

    RuntimeError for a negative beta.
    """
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta: {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction, beta) / beta


def check_target(input: Tensor, target: Tensor, one_type: bool) -> None:
    """ValueError where two shapes differ, RuntimeError where the types do not fit."""
    if target.shape != input.shape:
        raise ValueError(f"Target size {target.shape} must be that of the input, {input.shape}")
    if not target.is_floating_point() or (one_type and target.dtype is not input.dtype):
        raise RuntimeError(f"Found dtype {target.dtype!r} but expected {input.dtype!r}")


class BinaryCrossEntropy(Function):
    """l = -t log(x) - (1 - t) log(1 - x);   dl/dx = (x - t) / (x (1 - x)).

    Logarithms below -100 count as -100, so that a wrong 0 or 1 costs much, and not inf.
    """

    elementwise = True

    def forward(ctx, x: Any, t: Any) -> Any:
        ctx.save_for_backward(x, t)
        log, log1m = ctx.xp.log(x), ctx.xp.log1p(-x)
        return (t - 1) * ctx.xp.clip(log1m, -100, None) - t * ctx.xp.clip(log, -100, None)

    def backward(ctx, g: Any) -> Any:
        x, t = ctx.saved
        gx = g * (x - t) / ctx.xp.clip(x * (1 - x), 1e-12, None)
        return gx, None if ctx.edges[1] is None else g * (ctx.xp.log1p(-x) - ctx.xp.log(x))


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-log of the probability that `input` gives to what `target` says: 1 (yes) or 0 (no).

    ValueError where the shapes differ, RuntimeError for other types or no probability.
    """
    check_target(input, target, one_type=True)
    if input.numel() and not 0 <= float(input.array.min()) <= float(input.array.max()) <= 1:
        raise RuntimeError("all elements of input should be between 0 and 1")
    return reduce(BinaryCrossEntropy.apply(input, target), reduction, weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), without the sigmoid that could become 0 or 1.

    `pos_weight` counts each yes that often. ValueError where the shapes differ.
    """
    check_target(input, target, one_type=False)
    yes = softplus(-input, threshold=float("inf"))  # -logsigmoid(input)
    yes = yes if pos_weight is None else yes * (1 + (pos_weight - 1) * target)
    return reduce((1 - target) * input + yes, reduction, weight)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input divided by its p-norm over `dim`: vectors of length 1 (by eps, if larger)."""
    return input / norm(input, p, dim, keepdim=True).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors: 1 for one direction, 0 for a right angle."""
    x1, x2 = broadcast_tensors(x1, x2)
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension. (eps: at 0 the norm has no slope.)"""
    return norm(x1 - x2 + eps, p, -1, keepdim)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """How far the anchor is from being nearer to `positive` than to `negative` by a margin (Schroff
    et al., 2015). With swap the distance from positive to negative counts, if it is smaller.

    ValueError unless the margin is positive.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduce((near - far + margin).clamp(min=0), reduction)


def kl_div(
    input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input), where input is a logarithm: sum it for the divergence.

    "batchmean" is the sum divided by the first size, which is the mean of the definition.
    """
    logs = target if log_target else (target + (target == 0)).log()  # 0 log 0 is 0
    losses = (target.exp() if log_target else target) * (logs - input)
    if reduction == "batchmean":
        return losses.sum() / (input.array.shape or (1,))[0]
    return reduce(losses, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """-log of the density that a normal distribution with mean `input` and variance `var`, at least
    eps, has at the target; with `full` also its constant. ValueError for a `var` that does not fit
    or is negative."""
    var = var if isinstance(var, Tensor) else input.detach() * 0 + var
    var = var.unsqueeze(-1) if var.array.shape == input.array.shape[:-1] else var
    pairs = list(zip(input.array.shape, var.array.shape, strict=False))
    fits = input.array.ndim == var.array.ndim and [b for a, b in pairs if a != b] in ([], [1])
    if not fits or bool((var < 0).any()):
        raise ValueError(f"var does not fit or is negative: {var.shape} for {input.shape}")
    var = var + (var.detach().clamp(min=eps) - var.detach())  # at least eps, with the slope of var
    losses = 0.5 * (var.log() + (input - target) ** 2 / var)
    return reduce(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def as_rows(input: Tensor) -> Tensor:
    """[n, c, ...] as [n * ..., c], and [c] as [1, c]."""
    shape, ndim = input.array.shape, input.array.ndim
    if ndim == 2:
        return input
    place = min(ndim - 1, 1)
    return input.movedim(place, -1).reshape(math.prod(shape) // max(shape[place], 1), shape[place])


def check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> tuple[int, ...]:
    """The shape of the losses. ValueError, RuntimeError or NotImplementedError where they do not
    fit."""
    shape, found = input.array.shape, target.array.shape
    if not input.is_floating_point():
        raise NotImplementedError(f"losses for classes are not implemented for {input.dtype!r}")
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    c, expected = shape[min(len(shape) - 1, 1)], shape[:1] + shape[2:] if shape[1:] else ()
    if weight is not None and weight.array.shape != (c,):
        raise RuntimeError(f"weight: either for all {c} classes, or None: {weight.shape}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"expected scalar type {input.dtype!r} but found {weight.dtype!r}")
    if found not in (shape, expected) and shape[1:] and found[:1] != shape[:1]:
        raise ValueError(f"batch sizes of input, {shape}, and target, {found}, differ")
    if found not in (shape, expected):
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(found)}")
    return expected


def chosen(target: Tensor, c: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """(class of each row, which rows are ignored), None where none is.

    IndexError for a class that does not exist, RuntimeError where targets are no integers.
    """
    if target.dtype not in (int64, uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype!r}")
    index = (target if target.array.ndim == 1 else target.reshape(-1)).long()
    ignored, values = None, index.array
    if values.size and (0 <= ignore_index < c or not 0 <= values.min() <= values.max() < c):
        ignored = index == ignore_index
        index = index.masked_fill(ignored, 0)
        wrong = index.array[(index.array < 0) | (index.array >= c)]
        if wrong.size:
            raise IndexError(f"Target {int(wrong[0])} is out of bounds.")
    return index, ignored


def reduce_rows(
    losses: Tensor, counts: Tensor | None, ignored: Tensor | None, shape: tuple, reduction: str
) -> Tensor:
    """The reduced losses, 0 where a row is ignored. The mean divides by what all rows count."""
    if ignored is not None:
        losses = losses.masked_fill(ignored, 0)
        counts = ~ignored if counts is None else counts.masked_fill(ignored, 0)
    if reduction == "mean" and counts is not None:
        return losses.sum() / counts.sum()
    return reduce(losses if losses.array.shape == shape else losses.reshape(shape), reduction)


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
    shape, rows = check_classes(input, target, weight), as_rows(input)
    index, ignored = chosen(target, rows.array.shape[1], ignore_index)
    losses = -rows.gather(1, index.unsqueeze(1)).squeeze(1)
    counts = None if weight is None else weight[index]
    losses = losses if counts is None else losses * counts
    return reduce_rows(losses, counts, ignored, shape, reduction)


class CrossEntropy(Function):
    """l = log(exp(x_1) + ... + exp(x_c)) - x_t for each row;   dl/dx_i = softmax(x)_i - [i = t].

    Softmax, logarithm, choice and, if asked for, the mean in one: stable, as the maximum is taken
    out first, and only one exp. The gradient is what is said minus what is true.
    """

    def forward(ctx, x: Any, index: Any, mean: bool = False) -> Any:
        xp, n = ctx.xp, len(x)
        z = minus_max(wide(x), (1,), xp)
        e = xp.exp(z)
        total = sum_rows(e, True)
        places = index + xp.arange(0, x.size, x.shape[1] or 1)  # of x_t, all rows in one line
        losses = xp.log(total).reshape(n) - z.take(places)
        e /= total
        e.reshape(-1)[places] -= 1
        ctx.slope, ctx.count = e.astype(x.dtype, copy=False), n if mean else 1
        ctx.save_for_backward(x, index, xp.arange(x.shape[1]))
        return (losses.sum() / n if mean else losses).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, index, classes = ctx.saved
        g = g.reshape(-1, 1) / ctx.count
        if ctx.xp is not Tensor:
            return ctx.slope * g, None
        # To be differentiated again, the softmax has to be a function of x again.
        return ctx.call(Softmax, x, (1,)) * g - (index.reshape(-1, 1) == classes) * g, None


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
    RuntimeError, ValueError or IndexError where they do not fit, as in PyTorch.
    """
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
        return reduce(-(log_softmax(rows, 1) * truth).sum(1).reshape(shape), reduction)
    index, ignored = chosen(target, c, ignore_index)
    if reduction == "mean" and weight is None and ignored is None and not label_smoothing:
        return CrossEntropy.apply(rows, index, True)
    losses, counts = CrossEntropy.apply(rows, index), None if weight is None else weight[index]
    losses = losses if counts is None else losses * counts
    if label_smoothing:
        logs = log_softmax(rows, 1) if weight is None else log_softmax(rows, 1) * weight
        losses = losses * one - logs.sum(1) * (label_smoothing / c)
    return reduce_rows(losses, counts, ignored, shape, reduction)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class that an integer names, 0 elsewhere: [...] becomes [..., num_classes], int64.

    Without num_classes there are as many as the largest integer needs. RuntimeError for others.
    """
    if tensor.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, num_classes - 1)
    c = high + 1 if num_classes == -1 else num_classes
    if low < 0 or high >= c or c < 1:
        raise RuntimeError(f"Class values must be from 0 to num_classes - 1, got {low} to {high}")
    return (tensor.unsqueeze(-1) == wrap(tensor.device.xp.arange(c), tensor.device)).long()


class Comparison(FunctionModule):
    """A module that compares two inputs, such as an answer and the truth."""

    _inputs = 2

    def extra_repr(self) -> str:
        return ""


class MSELoss(Comparison, function=mse_loss):
    """mse_loss as a module."""


class L1Loss(Comparison, function=l1_loss):
    """l1_loss as a module."""


class HuberLoss(Comparison, function=huber_loss):
    """huber_loss as a module."""


class SmoothL1Loss(Comparison, function=smooth_l1_loss):
    """smooth_l1_loss as a module."""


class BCELoss(Comparison, function=binary_cross_entropy):
    """binary_cross_entropy as a module; `weight` is a buffer."""


class BCEWithLogitsLoss(Comparison, function=binary_cross_entropy_with_logits):
    """binary_cross_entropy_with_logits as a module; its tensors are buffers."""


class TripletMarginLoss(Comparison, function=triplet_margin_loss):
    """triplet_margin_loss as a module."""

    _inputs = 3


class CosineSimilarity(Comparison, function=cosine_similarity):
    """cosine_similarity as a module."""


class KLDivLoss(Comparison, function=kl_div):
    """kl_div as a module."""


class NLLLoss(Comparison, function=nll_loss):
    """nll_loss as a module; `weight` is a buffer."""


class CrossEntropyLoss(Comparison, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


class GaussianNLLLoss(Comparison, function=gaussian_nll_loss):
    """gaussian_nll_loss as a module; the variance comes with each call."""

    _inputs = 3


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    # Three rows of logits, and the right classes.
    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
    target = tensor([0, 1, 0])
    losses = cross_entropy(x, target, reduction="none")
    print(losses.detach())  # -> tensor([0.4076, 0.0134, 2.1698])
    losses.sum().backward()
    print(x.grad)
    # -> tensor([[-0.3348,  0.2447,  0.0900],
    # ->         [ 0.0066, -0.0133,  0.0066],
    # ->         [-0.8858,  0.0420,  0.8438]])
    said, true = x.detach().softmax(1), one_hot(target, 3)
    print("said minus true:", (x.grad - (said - true)).abs().max().item() < 1e-6)
    # -> said minus true: True
    double = randn(3, 3, dtype=float64, requires_grad=True)
    print("twice:", gradgradcheck(lambda x: cross_entropy(x, target), (double,)))  # -> twice: True

    # Large numbers, in float32.
    large = tensor([[1000.0, 0.0, -1000.0]])
    powers = large.exp()
    print("as written:", -(powers / powers.sum()).log()[0, 0].item())  # -> as written: nan
    for right in (0, 2):
        print("cross_entropy:", cross_entropy(large, tensor([right])).item())
    # -> cross_entropy: 0.0
    # -> cross_entropy: 2000.0

    # The softmax taken twice.
    sure, right = tensor([[20.0, 0.0, 0.0]]), tensor([0])
    for logits in (sure, sure.softmax(1)):
        print(f"sure and right: {cross_entropy(logits, right).item():.4f}")
    # -> sure and right: 0.0000
    # -> sure and right: 0.5514

    # Weights, rows that do not count, smoothed truth, and probabilities as truth.
    x = x.detach()
    losses, weight = cross_entropy(x, target, reduction="none"), tensor([1.0, 10.0, 1.0])
    by_hand = (losses[0] + 10 * losses[1] + losses[2]) / 12
    print(f"{by_hand.item():.5f} = {cross_entropy(x, target, weight=weight).item():.5f}")
    # -> 0.22594 = 0.22594
    padded = cross_entropy(x, tensor([0, -100, 0]))
    print(f"{((losses[0] + losses[2]) / 2).item():.5f} = {padded.item():.5f}")
    # -> 1.28873 = 1.28873
    truth = one_hot(target, 3) * 0.7 + 0.1
    smooth = cross_entropy(x, target, label_smoothing=0.3)
    print(f"{cross_entropy(x, truth).item():.5f} = {smooth.item():.5f}")
    # -> 1.26361 = 1.26361
    nll = nll_loss(log_softmax(x, 1), target)
    print(f"{losses.mean().item():.5f} = {nll.item():.5f}")  # -> 0.86361 = 0.86361
    for wrong in (tensor([0, 1, 3]), tensor([0, 1, -1]), tensor([0, 1])):
        try:
            cross_entropy(x, wrong)
        except (IndexError, ValueError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> IndexError: Target 3 is out of bounds.
    # -> IndexError: Target -1 is out of bounds.
    # -> ValueError: batch sizes of input, (3, 3), and target, (2,), differ

    # How far one distribution is from another.
    p, q = tensor([[0.5, 0.5]]), tensor([[0.9, 0.1]])
    print(f"{kl_div(q.log(), p, reduction='batchmean').item():.4f}")  # -> 0.5108

    # Two networks are off by 1 and say how sure they are: variances 1 and 0.01.
    zero, one = tensor([0.0]), tensor([1.0])
    for variance in (one, one / 100):
        print(f"{gaussian_nll_loss(zero, one, variance).item():.2f}")
    # -> 0.50
    # -> 47.70

    # As modules: their tensors are buffers, so that to() and state_dict() know them.
    loss = CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    print(loss, list(loss.state_dict()), loss.double().weight.dtype)
    # -> CrossEntropyLoss() ['weight'] tinytorch.float64
