"""Step loss16: Label smoothing

A label gives one class the probability 1. Then cross_entropy has its minimum, 0, only at infinite
logits; so the logits grow as long as training lasts, for wrong labels as well. The demo trains
three logits and prints the largest.

Label smoothing takes a share s of the probability and spreads it over all c classes (Szegedy et
al., 2015):

    q = (1 - s) one_hot(t) + s / c          minimum at softmax(x) = q, where the logits are finite

With integer labels the loss has two parts: (1 - s) times the loss without smoothing, plus s / c
times the sum of -log p over all classes. A target of probabilities is smoothed directly.

Class weights and ignored rows apply to both parts. The mean divides both by the sum of the weights
of the rows that count.

The trap: the smallest loss is no longer 0. A loss of 0.3 may be the best possible one, so compare
accuracies, or losses with the same s.

Changed: cross_entropy.
Try: label_smoothing=1. What does the network learn?
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


class NLLLoss(LossModule, function=nll_loss):
    """nll_loss as a module; `weight` is a buffer."""


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.ops.nll import one_hot

    importlib.import_module("tinytorch.core.printing")

    def trained(steps, smoothing):
        x = tensor([[0.0, 0.0, 0.0]], requires_grad=True)
        for _ in range(steps):
            x.grad = None
            cross_entropy(x, tensor([2]), label_smoothing=smoothing).backward()
            with no_grad():
                x -= x.grad
        return f"logit {x[0, 2].item():.1f}, probability {x.softmax(1)[0, 2].item():.3f}"

    print("certain: ", trained(100, 0.0), "| then", trained(500, 0.0))
    # -> certain:  logit 3.8, probability 0.993 | then logit 4.9, probability 0.999
    print("smoothed:", trained(100, 0.1), "| then", trained(500, 0.1))
    # -> smoothed: logit 2.2, probability 0.933 | then logit 2.2, probability 0.933

    # The smoothed label, as a distribution: the same loss.
    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]])
    target = tensor([0, 1, 0])
    truth = one_hot(target, 3) * 0.7 + 0.1
    smooth = cross_entropy(x, target, label_smoothing=0.3)
    print(f"{cross_entropy(x, truth).item():.5f} = {smooth.item():.5f}")  # -> 1.26361 = 1.26361
    print(f"{cross_entropy(x, truth, label_smoothing=0.5).item():.5f}")  # -> 1.73028

    # Weights and padding.
    weight, padded = tensor([1.0, 10.0, 1.0]), tensor([0, 1, -100])
    print(f"{cross_entropy(x, truth, weight).item():.5f}")  # -> 2.66897
    print(f"{cross_entropy(x, padded, weight, label_smoothing=0.3).item():.5f}")  # -> 0.28038
    print(cross_entropy(x, padded, label_smoothing=0.3, reduction="none"))
    # -> tensor([0.7076, 1.0134, 0.0000])
    try:
        cross_entropy(x, target, label_smoothing=2.0)
    except RuntimeError as error:
        print(error)
    # -> label_smoothing must be between 0.0 and 1.0. Got: 2.0
