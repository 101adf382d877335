"""Step 74b: How wrong is a class?

A classifier gives one number for each class, a logit. softmax turns the logits into probabilities,
and the loss is -log of the probability of the right class: the yes or no of step 74a, for many
classes. The Function for it is there since step 65b: NllLoss.

The trap: cross_entropy expects logits, which can be any numbers. A Softmax layer in front of it
means that the softmax is taken twice. The loss looks fine and goes down, but it can never come near
0, and the gradients are small. (softmax wants to know along which dimension the numbers are
alternatives. Programs of 2017 do not say it: those of torch.nn still guess, with a warning.)

What people need besides: a weight for each class, if some are rare; ignore_index for rows that do
not count, such as padding; label_smoothing, which spreads a part of the truth over all classes; and
targets that are themselves probabilities. The mean divides by the total weight of the rows, not by
their number, as in PyTorch. A class that does not exist raises an error, and never picks up the
number of another: in NumPy, index -1 would be the last class.

If there are too many classes to name, such as people, the network gives a vector, and distances
decide: the triplet loss wants an anchor closer to a vector of its own kind than to one of another
kind, by a margin.

nll_loss is the part after log_softmax; kl_div compares two distributions (by definition its mean is
"batchmean"; "mean" is not). gaussian_nll_loss is for a network that gives a number and says how
sure it is: the smaller the variance it claims, the more it pays for being wrong.

New: softmax and log_softmax of nn; the losses for classes, vectors and distributions; modules.
Moved: the losses of step 74a, to tinytorch/nn/loss.py.
Try: in step 65b give NllLoss the logits.softmax(1), and compare the digits after 20 epochs.
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.activation import FunctionModule
from tinytorch.nn.loss import Comparison, pairwise_distance, reduced, reduction_of
from tinytorch.ops import softmax as explicit
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def implicit_dim(name: str, input: Tensor) -> int:
    """The dimension that was meant by none, before it had to be given; with a warning."""
    text = f"Implicit dimension choice for {name} has been deprecated: please give it dim=..."
    warnings.warn(text, stacklevel=3)
    return 0 if input.array.ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input), divided by its sum over `dim`. Errors as of tinytorch.softmax."""
    return explicit.softmax(input, implicit_dim("softmax", input) if dim is None else dim, dtype)


def log_softmax(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of softmax. Errors as of tinytorch.log_softmax."""
    dim = implicit_dim("log_softmax", input) if dim is None else dim
    return explicit.log_softmax(input, dim, dtype)


class Softmax(FunctionModule, function=softmax, options=1):
    """softmax as a module."""


class LogSoftmax(FunctionModule, function=log_softmax, options=1):
    """log_softmax as a module."""


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
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
    return reduced((near - far + margin).clamp(min=0), reduction, size_average, reduce)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average=None,
    reduce=None,
    reduction="mean",
    log_target=False,
) -> Tensor:
    """target * (log(target) - input), where input is a logarithm: sum it for the divergence.

    "batchmean" is the sum divided by the first size, which is the mean of the definition.
    """
    logs = target if log_target else (target + (target == 0)).log()  # 0 log 0 is 0
    losses = (target.exp() if log_target else target) * (logs - input)
    if reduction == "mean":
        warnings.warn("kl_div: by definition the mean is 'batchmean'; 'mean' is not", stacklevel=2)
    if reduction == "batchmean":
        return losses.sum() / (input.array.shape or (1,))[0]
    return reduced(losses, reduction, size_average, reduce)


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
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


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
    if weight is not None and (weight.array.shape != (c,) or weight.requires_grad):
        raise RuntimeError(f"weight: one, without gradient, for each of {c} classes: {weight!r}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"expected scalar type {input.dtype!r} but found {weight.dtype!r}")
    if found not in (shape, expected) and shape[1:] and found[:1] != shape[:1]:
        raise ValueError(f"batch sizes of input, {shape}, and target, {found}, differ")
    if found not in (shape, expected):
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(found)}")
    return expected


def chosen(
    rows: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    """(class of each row; how much each counts, 0 where it is ignored; None for 1 each).

    IndexError for a class that does not exist, RuntimeError where targets are no integers.
    """
    if target.dtype not in (int64, uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype!r}")
    index, counts = (target if target.array.ndim == 1 else target.reshape(-1)).long(), None
    c, values = rows.array.shape[1], index.array
    if values.size and (0 <= ignore_index < c or not 0 <= values.min() <= values.max() < c):
        ignored = index == ignore_index
        wrong = values[((values < 0) | (values >= c)) & ~ignored.array]
        if wrong.size:
            raise IndexError(f"Target {int(wrong[0])} is out of bounds.")
        index, counts = index.masked_fill(ignored, 0), (~ignored).to(rows.dtype)
    if weight is not None:
        counts = weight[index] if counts is None else weight[index] * counts
    return index, counts


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input at the right class: the negative log likelihood, if `input` are log probabilities.

    Shapes, weights and errors as in cross_entropy.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    shape, rows = check_classes(input, target, weight), as_rows(input)
    index, counts = chosen(rows, target, weight, ignore_index)
    return NllLoss.apply(rows, index, counts, reduction, shape, True)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
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
    reduction = reduction_of(reduction, size_average, reduce)
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


class TripletMarginLoss(Comparison, function=triplet_margin_loss):
    """triplet_margin_loss as a module."""

    _inputs = 3


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
    from tinytorch.ops.nll import one_hot
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

    # Vectors: two that are alike, and one that is different.
    anchor, like, other = tensor([[1.0, 0.0]]), tensor([[1.0, 0.1]]), tensor([[0.0, 1.0]])
    print(f"{triplet_margin_loss(anchor, like, other).item():.3f}")  # -> 0.000
    print(f"{TripletMarginLoss(margin=2.0)(anchor, like, other).item():.3f}")  # -> 0.686

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
