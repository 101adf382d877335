"""Step loss15: Cross entropy: probabilities as targets

Sometimes the truth is not one class. Three people labelled an image, and two of them said "4"; or a
small network learns what a large one answers, which is a probability for each class (this is called
distillation). One label for each row cannot say that.

The target may be any distribution q. The cross entropy is then a sum over all classes:

    l = -sum over i of q_i log softmax(x)_i          q = one_hot(t) gives the loss of step loss10

A target in the shape of the input contains probabilities; a target of any other shape contains
labels. Class weights multiply q. The mean divides by the number of rows.

The trap: a target of integers in the input's shape, such as one_hot labels, is refused.
Probabilities must be floating-point numbers. And no class can be ignored: a row of probabilities
has no label to compare with ignore_index.

Changed: cross_entropy.
Try: cross_entropy(x, x.softmax(1)), where the network is exactly right. Is the loss 0?
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
) -> Tensor:
    """-log of the probability that softmax(input) gives to the right class.

    Args:
        input: [n, c], [n, c, ...] or [c]: any numbers, the higher the more probable.
        target: [n], [n, ...] or []: classes; or, in the shape of input, probabilities.
        weight: [c]: how much a row of each class counts. The mean divides by what all count.
        ignore_index: rows of this class do not count.
    Raises:
        IndexError: for a class that does not exist.
        RuntimeError, ValueError: where shapes, types or options do not fit.
    """
    reduction = check_reduction(reduction)
    shape, rows = check_classes(input, target, weight), as_rows(input)
    if target.array.shape == input.array.shape:
        if not target.is_floating_point():
            raise RuntimeError("Expected floating point type for target with class probabilities")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        truth = as_rows(target) if weight is None else as_rows(target) * weight
        return reduced(-(log_softmax(rows, 1) * truth).sum(1).reshape(shape), reduction)
    index, counts = chosen(rows, target, weight, ignore_index)
    return NllLoss.apply(rows, index, counts, reduction, shape, False)


class NLLLoss(LossModule, function=nll_loss):
    """nll_loss as a module; `weight` is a buffer."""


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


if __name__ == "__main__":
    from tinytorch.ops.nll import one_hot

    importlib.import_module("tinytorch.core.printing")

    # Labels as probabilities: the same loss.
    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]])
    target = tensor([0, 1, 0])
    labels = one_hot(target, 3).float()
    print(f"{cross_entropy(x, target).item():.5f} = {cross_entropy(x, labels).item():.5f}")
    # -> 0.86361 = 0.86361

    # Two of three people said class 0, the third class 1. The gradient is softmax(x) - q.
    q = tensor([[2 / 3, 1 / 3, 0.0]])
    one = x[:1].clone().requires_grad_()
    cross_entropy(one, q).backward()
    print(one.grad, (x[:1].softmax(1) - q).allclose(one.grad))
    # -> tensor([[-0.0014, -0.0886,  0.0900]]) True

    # Weights multiply q; each row of a batch, or each pixel, has its own loss.
    weight = tensor([1.0, 10.0, 1.0])
    print(f"{cross_entropy(x[:1], q, weight).item():.5f}")  # -> 4.96376
    print(cross_entropy(x, labels, reduction="none"))
    # -> tensor([0.4076, 0.0134, 2.1698])
    for mistake in (
        lambda: cross_entropy(x, one_hot(target, 3)),
        lambda: cross_entropy(x, labels, ignore_index=0),
    ):
        try:
            mistake()
        except RuntimeError as error:
            print(error)
    # -> Expected floating point type for target with class probabilities
    # -> ignore_index is not supported for floating point target
