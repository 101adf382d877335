"""Step 74n: How wrong is a class?

A classifier gives one number for each class, a logit. softmax turns the logits into probabilities,
and the loss is -log of the probability of the right class: the yes or no of step 74g, for many
classes. The Function for it is there since step 65o: NllLoss.

The trap: cross_entropy expects logits, which can be any numbers. A Softmax layer in front of it
means that the softmax is taken twice. The loss looks fine and goes down, but it can never come near
0, and the gradients are small. (softmax wants to know along which dimension the numbers are
alternatives. Programs of 2017 do not say it: those of torch.nn still guess, with a warning.)

What people need besides: a weight for each class, if some are rare; ignore_index for rows that do
not count, such as padding; label_smoothing, which spreads a part of the truth over all classes; and
targets that are themselves probabilities. The mean divides by the total weight of the rows, not by
their number, as in PyTorch. A class that does not exist raises an error, and never picks up the
number of another: in NumPy, index -1 would be the last class.

nll_loss is the part after log_softmax; kl_div compares two distributions (by definition its mean is
"batchmean"; "mean" is not).

New: softmax and log_softmax of nn; the losses for classes and distributions; modules.
Moved: the losses of step 74g, to tinytorch/nn/loss.py.
Try: in step 65o give NllLoss the logits.softmax(1), and compare the digits after 20 epochs.
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
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


def kl_div(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    log_target: bool = False,
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

    # How far one distribution is from another.
    p, q = tensor([[0.5, 0.5]]), tensor([[0.9, 0.1]])
    print(f"{kl_div(q.log(), p, reduction='batchmean').item():.4f}")  # -> 0.5108

    # As modules: their tensors are buffers, so that to() and state_dict() know them.
    loss = CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    print(loss, list(loss.state_dict()), loss.double().weight.dtype)
    # -> CrossEntropyLoss() ['weight'] tinytorch.float64
