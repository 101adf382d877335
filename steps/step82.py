"""Step 82: How wrong is an answer?

A network that tells classes apart gives one number for each class. softmax makes probabilities of
them, and the loss is -log of the probability that the right class got: 0 where the network is sure
and right, large where it is sure and wrong. Step 67 had it as log_softmax and an index. Here it is
one Function, since its gradient is so simple that everything in between can be left out:

    l = log(exp(x_1) + ... + exp(x_c)) - x_t         dl/dx_i = softmax(x)_i - [i = t]

What the network says minus what is true. For a second derivative it must be a function of x again:
on Tensors backward computes the softmax anew (step 33 explains the two kinds of backward).

The trap: cross_entropy wants logits, any numbers. Who puts a Softmax before it takes the softmax
twice. The loss looks fine and goes down, but it cannot come near 0 any more, and the gradients are
small. The same holds for yes-or-no questions: binary_cross_entropy wants probabilities,
binary_cross_entropy_with_logits the numbers before the sigmoid. Take the latter: sigmoid(100) is 1
in float32, and log(1 - 1) is minus infinity. It counts as -100, and there is no gradient left. The
version with logits still knows how wrong it is.

What people need besides: a weight for each class, where some are rare (pos_weight, where a yes is);
ignore_index for rows that do not count, such as padding; label_smoothing, which spreads a part of
the truth over all classes; and targets that are probabilities themselves. The mean divides by what
all rows weigh, not by their number, as in PyTorch. A class that does not exist raises an error, and
never takes a neighbour's number: index -1 would be the last class in NumPy.

nll_loss is the part after log_softmax; kl_div compares two distributions ("batchmean" is the mean
of the definition, "mean" is not).

New: the losses for classes, one_hot, and a module for each loss. Moved: the activations, to
tinytorch/nn/activation.py. tinytorch/nn/functional.py offers all functions under one name now.
Try: in step 67 give log_softmax the logits.softmax(1), and compare the digits after 20 epochs.
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.gradcheck import gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64, int64, uint8
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.nn.activation import FunctionModule, logsigmoid
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.reduction import wide
from tinytorch.ops.softmax import Softmax, log_softmax, minus_max

# Importing the modules of the operations brings their methods to Tensor.
for name in ("arithmetic", "comparison", "elementwise", "extremes", "indexing", "gather", "shape"):
    importlib.import_module(f"tinytorch.ops.{name}")


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none"). ValueError for other words."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else getattr(losses, reduction)()


def difference(input: Tensor, target: Tensor) -> Tensor:
    """input - target. A warning where their shapes differ: broadcasting is seldom what is meant."""
    d, a, b = input - target, tuple(target.array.shape), tuple(input.array.shape)
    if a != b:
        text = f"Using a target size {a} that is different to the input size {b}"
        warnings.warn(text + ": check that the broadcasting is meant.", stacklevel=3)
    return d


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)^2."""
    d = difference(input, target)
    return reduce(d * d, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return reduce(difference(input, target).abs(), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) for d = |input - target| below beta; beyond, the line of slope 1 that goes on
    (Girshick, 2015). RuntimeError for a negative beta."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    d = difference(input, target).abs()
    near = d.clamp(max=beta)
    return reduce(near * (d - 0.5 * near) / beta if beta else d, reduction)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input), where input is a logarithm: sum it for the divergence.

    "batchmean" is the sum divided by the first size, which is the mean of the definition.
    """
    if log_target:
        losses = target.exp() * (target - input)
    else:
        losses = target * ((target + (target == 0)).log() - input)  # 0 log 0 is 0
    if reduction == "batchmean":
        return losses.sum() / (input.array.shape or (1,))[0]
    return reduce(losses, reduction)


def same_shape(input: Tensor, target: Tensor) -> None:
    """ValueError where two shapes differ."""
    a, b = target.shape, input.shape
    if a != b:
        raise ValueError(f"Target size ({a}) must be the same as input size ({b})")


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
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """-log of the probability that `input` gives to what `target` says: 1 (yes) or 0 (no).

    ValueError where the shapes differ, RuntimeError where input is no probability.
    """
    same_shape(input, target)
    if bool(((input < 0) | (input > 1)).any()):
        raise RuntimeError("all elements of input should be between 0 and 1")
    losses = BinaryCrossEntropy.apply(input, target)
    return reduce(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), without the sigmoid that could become 0 or 1.

    `pos_weight` counts each yes that often. ValueError where the shapes differ.
    """
    same_shape(input, target)
    yes = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    losses = (1 - target) * input - yes * logsigmoid(input)
    return reduce(losses if weight is None else losses * weight, reduction)


def as_rows(input: Tensor) -> Tensor:
    """[n, c, ...] as [n * ..., c], and [c] as [1, c]."""
    shape, ndim = input.array.shape, input.array.ndim
    if ndim == 2:
        return input
    place = min(ndim - 1, 1)
    return input.movedim(place, -1).reshape(math.prod(shape) // max(shape[place], 1), shape[place])


def check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> tuple[int, ...]:
    """The shape of the losses. ValueError or RuntimeError where shapes do not fit."""
    shape, found = input.array.shape, target.array.shape
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
    if index.array.size == 0 or (
        not 0 <= ignore_index < c and 0 <= int(index.array.min()) and int(index.array.max()) < c
    ):
        return index, None
    ignored = index == ignore_index
    index = index.masked_fill(ignored, 0)
    for wrong in (int(index.array.min()), int(index.array.max())):
        if not 0 <= wrong < c:
            raise IndexError(f"Target {wrong} is out of bounds.")
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

    Softmax, logarithm and choice in one: stable, as the maximum is taken out first, and only one
    exp. The gradient is what is said minus what is true.
    """

    def forward(ctx, x: Any, index: Any) -> Any:
        xp = ctx.xp
        z = minus_max(wide(x), (1,), xp)
        e = xp.exp(z)
        total = e.sum(axis=1, keepdims=True)
        e /= total
        ctx.softmax = e.astype(x.dtype, copy=False)
        ctx.save_for_backward(x, index, xp.arange(x.shape[1]))
        losses = xp.log(total[:, 0]) - z[xp.arange(len(x)), index]
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, index, classes = ctx.saved
        # On arrays the softmax is at hand. On Tensors it has to be a function of x again.
        p = ctx.call(Softmax, x, (1,)) if ctx.xp is Tensor else ctx.softmax
        g = g.reshape(-1, 1)
        return p * g - (index.reshape(-1, 1) == classes) * g, None


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
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
    some = tensor.array.size > 0
    low, high = (int(tensor.min()), int(tensor.max())) if some else (0, num_classes - 1)
    c = high + 1 if num_classes == -1 else num_classes
    if low < 0 or high >= c or c < 1:
        raise RuntimeError(f"Class values must be from 0 to num_classes - 1, got {low} to {high}")
    return (tensor.unsqueeze(-1) == wrap(tensor.device.xp.arange(c), tensor.device)).long()


class Loss(FunctionModule):
    """A module that compares input and target."""

    inputs = 2

    def extra_repr(self) -> str:
        return ""


class MSELoss(Loss):
    """mse_loss as a module."""

    function = staticmethod(mse_loss)


class L1Loss(Loss):
    """l1_loss as a module."""

    function = staticmethod(l1_loss)


class SmoothL1Loss(Loss):
    """smooth_l1_loss as a module."""

    function = staticmethod(smooth_l1_loss)


class KLDivLoss(Loss):
    """kl_div as a module."""

    function = staticmethod(kl_div)


class BCELoss(Loss):
    """binary_cross_entropy as a module; `weight` is a buffer."""

    function = staticmethod(binary_cross_entropy)


class BCEWithLogitsLoss(Loss):
    """binary_cross_entropy_with_logits as a module; `weight` and `pos_weight` are buffers."""

    function = staticmethod(binary_cross_entropy_with_logits)


class NLLLoss(Loss):
    """nll_loss as a module; `weight` is a buffer."""

    function = staticmethod(nll_loss)


class CrossEntropyLoss(Loss):
    """cross_entropy as a module; `weight` is a buffer."""

    function = staticmethod(cross_entropy)


if __name__ == "__main__":
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
    print(
        "as written:", -(large.exp() / large.exp().sum()).log()[0, 0].item()
    )  # -> as written: nan
    for right in (0, 2):
        print("cross_entropy:", cross_entropy(large, tensor([right])).item())
    # -> cross_entropy: 0.0
    # -> cross_entropy: 2000.0
    logit, no = tensor([200.0], requires_grad=True), tensor([0.0])
    loss = binary_cross_entropy_with_logits(logit, no)
    loss.backward()
    print("with logits:", loss.item(), "gradient", logit.grad.item())
    # -> with logits: 200.0 gradient 1.0
    logit.grad = None
    loss = binary_cross_entropy(logit.sigmoid(), no)
    loss.backward()
    print("after a sigmoid:", loss.item(), "gradient", logit.grad.item())
    # -> after a sigmoid: 100.0 gradient 0.0

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

    unsure, yes = tensor([0.0]), tensor([1.0])
    once = binary_cross_entropy_with_logits(unsure, yes)
    three = binary_cross_entropy_with_logits(unsure, yes, pos_weight=tensor([3.0]))
    print(f"3 * {once.item():.4f} = {three.item():.4f}")  # -> 3 * 0.6931 = 2.0794

    # How far one distribution is from another.
    p, q = tensor([[0.5, 0.5]]), tensor([[0.9, 0.1]])
    print(f"{kl_div(q.log(), p, reduction='batchmean').item():.4f}")  # -> 0.5108

    # As modules: their tensors are buffers, so that to() and state_dict() know them.
    loss = CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    print(loss, list(loss.state_dict()), loss.double().weight.dtype)
    # -> CrossEntropyLoss() ['weight'] tinytorch.float64
