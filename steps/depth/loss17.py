"""Step loss17: kl_div: the Kullback-Leibler divergence

In step loss15 the target may be a distribution q, and then the smallest possible loss is not 0 but
the entropy of q: the toss of a coin cannot be predicted. In the demo the prediction is perfect, and
cross_entropy returns 0.693. The divergence subtracts this minimum:

    KL(q, p) = sum of q_i (log q_i - log p_i)         0 if p = q, larger otherwise

The gradient with respect to p is that of the cross entropy. A small network that learns from the
outputs of a large one (distillation) is trained with it, and variational autoencoders (step
distribution08) use it.

kl_div takes log p, because log_softmax returns that, and it is exact for small p. log_target=True
means that q is a logarithm, too. 0 log 0 counts as 0: (target == 0) is added inside the logarithm.

The traps are in the arguments. The prediction comes first, as a logarithm; the target second. The
order matters: KL(q, p) is not KL(p, q). And "mean" divides by the number of elements; the
definition sums over each distribution, which is "batchmean", and a warning says so.

New: kl_div, KLDivLoss.
Try: leave the logarithm out. Is kl_div(p, p) still 0?
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.activation import FunctionModule
from tinytorch.nn.loss import LossModule, check_reduction, reduced
from tinytorch.ops import softmax as explicit
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    coin, bent = tensor([[0.5, 0.5]]), tensor([[0.9, 0.1]])
    print(f"perfect, and cross_entropy says {cross_entropy(coin.log(), coin).item():.3f}")
    # -> perfect, and cross_entropy says 0.693
    print("kl_div says", kl_div(coin.log(), coin, reduction="batchmean").item())
    # -> kl_div says 0.0
    one = kl_div(bent.log(), coin, reduction="batchmean").item()
    other = kl_div(coin.log(), bent, reduction="batchmean").item()
    print(f"{one:.4f} is not {other:.4f}")  # -> 0.5108 is not 0.3681
    by_hand = cross_entropy(bent.log(), coin) - cross_entropy(coin.log(), coin)
    print(f"{by_hand.item():.4f}")  # -> 0.5108

    logs, truth = bent.log().expand(3, 2), tensor([[1.0, 0.0], [0.5, 0.5], [0.9, 0.1]])
    print(kl_div(logs, truth, reduction="none").sum(1) + 0)  # -> tensor([0.1054, 0.5108, 0.0000])
    print(f"{KLDivLoss(reduction='batchmean')(logs, truth).item():.4f}")  # -> 0.2054
    again = kl_div(logs, truth.clamp(min=1e-30).log(), reduction="sum", log_target=True)
    print(f"{again.item() / 3:.4f}")  # -> 0.2054
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(f"{kl_div(logs, truth).item():.4f}", caught[0].message)
    # -> 0.1027 kl_div: by definition the mean is 'batchmean'; 'mean' is not
    try:
        kl_div(tensor([1, 2]), truth)
    except RuntimeError as error:
        print(error)  # -> kl_div: Integral inputs not supported.
