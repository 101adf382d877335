"""Step loss13: Cross entropy for images and sequences

A network that classifies each pixel of an image returns [n, c, height, width], and cross_entropy
takes [n, c, words] from a language model. So far it handles rows only. The demo shows that a
reshape to three columns alone gives a wrong number: its three are neighbouring pixels.

The classes are dimension 1, and the other dimensions together are the rows:

    [n, c, h, w]  ->  movedim  ->  [n, h, w, c]  ->  reshape  ->  [n h w, c]

The target, [n, h, w], becomes [n h w]. One row without a batch, [c], becomes [1, c]; its target is
a number. as_rows does this, and the rest of cross_entropy works on rows as before. At the end the
losses get the target's shape.

check_classes checks the types and shapes: floating-point logits, the expected shape of the target,
one weight for each class.

The trap is the position of c. Layers for words return [n, words, c], and cross_entropy expects [n,
c, words]. If there are as many words as classes, no check can notice. (This is PyTorch's layout,
because images are [n, channels, h, w].)

Changed: chosen, cross_entropy. New: as_rows, check_classes.
Try: logits [n, words, c] with words = c. What does the loss compare?
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
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.elementwise import sigmoid_of
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


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randint, randn

    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)
    pixels, labels = randn(2, 3, 4, 5), randint(0, 3, (2, 4, 5))
    by_hand = 0.0
    for item in range(2):
        for row in range(4):
            for column in range(5):
                logits = pixels[item, :, row, column].reshape(1, 3)
                by_hand += cross_entropy(logits, labels[item, row, column].reshape(1)).item() / 40
    print(f"{by_hand:.5f} = {cross_entropy(pixels, labels).item():.5f}")  # -> 1.42810 = 1.42810
    wrong = NllLoss.apply(pixels.reshape(40, 3), labels.reshape(-1), None, "mean", (), False)
    print(f"reshaped, but not moved: {wrong.item():.5f}")  # -> reshaped, but not moved: 1.20187
    print(cross_entropy(pixels, labels, reduction="none").shape, as_rows(randn(0, 3, 2)).shape)
    # -> tinytorch.Size([2, 4, 5]) tinytorch.Size([0, 3])
    print(cross_entropy(tensor([2.0, 1.0, 0.0]), tensor(0)))  # -> tensor(0.4076)

    for mistake in (
        lambda: cross_entropy(pixels, labels[:1]),
        lambda: cross_entropy(pixels, labels[:, :2]),
        lambda: cross_entropy(tensor(1.0), tensor(0)),
        lambda: cross_entropy(pixels.long(), labels),
        lambda: cross_entropy(pixels, labels, tensor([1.0, 2.0])),
    ):
        try:
            mistake()
        except (ValueError, RuntimeError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> ValueError: batch sizes of input, (2, 3, 4, 5), and target, (1, 4, 5), differ
    # -> RuntimeError: Expected target size [2, 4, 5], got [2, 2, 5]
    # -> ValueError: Expected 1 or more dimensions (got 0)
    # -> NotImplementedError: losses for classes are not implemented for tinytorch.int64
    # -> RuntimeError: weight must have one element for each of 3 classes: tensor([1., 2.])
