"""Step loss14: softmax over a dimension, and nll_loss

For logits [n, c] the probabilities should add up to 1 in each row, so softmax takes dim=1. With
dim=0 they add up to 1 in each column, which is easily missed; the demo shows both. PyTorch used to
guess the dimension, so programs of 2017 do not give it. The functions of torch.nn still guess, with
a warning.

    dimensions      0  1  2  3  4 ...
    the guess       0  0  1  0  1 ...

A network may also end with log_softmax, so that its outputs are log probabilities. Then the loss is
only -x_t: nll_loss, the negative log likelihood. It is NllLoss with logs=True, and handles images,
weights and padding as cross_entropy does:

    cross_entropy(x, t) = nll_loss(log_softmax(x, 1), t)

The first computes it in one node and with one exp.

The trap: nll_loss of probabilities, without the logarithm. It is negative and goes down, but it is
not the cross entropy.

New: implicit_dim, softmax, log_softmax, Softmax, LogSoftmax; nll_loss, NLLLoss.
Try: nll_loss(x.softmax(1), t) in a training. How small does it get?
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float64, int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.activation import FunctionModule
from tinytorch.nn.loss import LossModule, check_reduction
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
        target: [n], [n, ...] or []: classes.
        weight: [c]: how much a row of each class counts. The mean divides by what all count.
        ignore_index: rows of this class do not count.
    Raises:
        IndexError: for a class that does not exist.
        RuntimeError, ValueError: where shapes, types or options do not fit.
    """
    reduction = check_reduction(reduction)
    shape, rows = check_classes(input, target, weight), as_rows(input)
    index, counts = chosen(rows, target, weight, ignore_index)
    return NllLoss.apply(rows, index, counts, reduction, shape, False)


class NLLLoss(LossModule, function=nll_loss):
    """nll_loss as a module; `weight` is a buffer."""


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
    target = tensor([0, 1, 0])

    x = x.detach()
    for dim in (1, 0):
        share = softmax(x, dim)
        print(f"over {dim}: rows add up to", [round(v, 2) for v in share.sum(1).tolist()])
    # -> over 1: rows add up to [1.0, 1.0, 1.0]
    # -> over 0: rows add up to [0.73, 1.11, 1.16]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        guessed = [bool((f(x) == f(x, 1)).all()) for f in (softmax, log_softmax)]
        guessed.append(bool((softmax(x[0]) == softmax(x[0], 0)).all()))
    print(guessed, caught[0].message)
    # -> [True, True, True] Implicit dimension choice for softmax has been deprecated: ...
    print(Softmax(dim=1)(x)[0], softmax(x, 1, dtype=float64).dtype)
    # -> tensor([0.6652, 0.2447, 0.0900]) tinytorch.float64

    logs = LogSoftmax(dim=1)(x)
    print(f"{nll_loss(logs, target).item():.5f} = {cross_entropy(x, target).item():.5f}")
    # -> 0.86361 = 0.86361
    print(f"without the logarithm: {nll_loss(softmax(x, 1), target).item():.5f}")
    # -> without the logarithm: -0.58871
    weight, padded = tensor([1.0, 10.0, 1.0]), tensor([0, 1, -100])
    one, two = NLLLoss(weight)(logs, padded), cross_entropy(x, padded, weight)
    print(f"{one.item():.5f} = {two.item():.5f}")  # -> 0.04922 = 0.04922
