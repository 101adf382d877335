"""Step loss12: Cross entropy: ignore_index and class weights

Sentences of different lengths are padded to make one batch. Padding has no right class; counting it
would teach the network to predict padding. And if nine hundred of a thousand images show a cat, the
other classes have little influence. Both problems are solved by a weight c_i for each row:

    mean = sum of c_i l_i / sum of c_i        c_i = weight[class of row i], or 0 if it is ignored

The mean divides by the sum of the weights, not by the number of rows: padding must not make a loss
look small. The demo compares with the mean by hand.

A row is ignored if its class is ignore_index. The default, -100, is not a valid class, so no class
is ignored by accident. `chosen` now returns the classes and the weights of the rows (None if all
are 1). An ignored row passes the check of step loss11; its class is replaced by 0, with weight 0.

The trap: if all rows of a batch are ignored, the mean is 0 / 0 = nan, in PyTorch as here. And the
weight is not learned; one that requires a gradient is refused.

Changed: chosen, cross_entropy, CrossEntropyLoss.
Try: a batch in which all is padding, with reduction="sum".
"""

import importlib
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
    index, counts = target.long(), None
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
        input: [n, c]: any numbers, the higher the more probable.
        target: [n]: classes.
        weight: [c]: how much a row of each class counts. The mean divides by what all count.
        ignore_index: rows of this class do not count.
    Raises:
        IndexError: for a class that does not exist.
        RuntimeError: where types do not fit.
    """
    reduction = check_reduction(reduction)
    index, counts = chosen(input, target, weight, ignore_index)
    return NllLoss.apply(input, index, counts, reduction, target.array.shape, False)


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module; `weight` is a buffer."""


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
    target = tensor([0, 1, 0])

    x = x.detach()
    losses = cross_entropy(x, target, reduction="none")
    padded = tensor([0, -100, 0])
    print("counted as a class 0:", f"{cross_entropy(x, tensor([0, 0, 0])).item():.5f}")
    # -> counted as a class 0: 2.53028
    by_hand = (losses[0] + losses[2]) / 2
    print(f"left out: {by_hand.item():.5f} = {cross_entropy(x, padded).item():.5f}")
    # -> left out: 1.28873 = 1.28873
    print(cross_entropy(x, padded, reduction="none"))  # -> tensor([0.4076, 0.0000, 2.1698])
    print(f"{cross_entropy(x, target, ignore_index=0).item():.5f} = {losses[1].item():.5f}")
    # -> 0.01339 = 0.01339

    weight = tensor([1.0, 10.0, 1.0])
    by_hand = (losses[0] + 10 * losses[1] + losses[2]) / 12
    print(f"{by_hand.item():.5f} = {cross_entropy(x, target, weight).item():.5f}")
    # -> 0.22594 = 0.22594
    both = CrossEntropyLoss(weight, ignore_index=0)
    print(f"{both(x, target).item():.5f}", list(both.state_dict()), both.double().weight.dtype)
    # -> 0.01339 ['weight'] tinytorch.float64
    print("nothing counts:", cross_entropy(x, tensor([-100, -100, -100])).item())
    # -> nothing counts: nan

    for mistake in (
        lambda: cross_entropy(x, target, weight.double()),
        lambda: cross_entropy(x, target, tensor([1.0, 2.0, 3.0], requires_grad=True)),
        lambda: cross_entropy(x, tensor([0, -100, -1])),
    ):
        try:
            mistake()
        except (RuntimeError, IndexError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: expected scalar type tinytorch.float32 but found tinytorch.float64
    # -> RuntimeError: the weight of classes cannot require a gradient
    # -> IndexError: Target -1 is out of bounds.
