"""Step loss05: Binary cross entropy of probabilities

Step 43 has the loss of yes or no for logits: -log of the probability of the right answer. This one
takes the probability p itself:

    l = -log(p) for yes, -log(1 - p) for no      =  -t log(p) - (1 - t) log(1 - p)

The second form also accepts a t between 0 and 1. Why not (p - t)^2? If the network is sure and
wrong, p = 0.999 for a no, its slope is only almost 2, and a sigmoid before it passes on very little
of that.

The losses so far were functions of x - t, and their gradient for t is that for x with the other
sign. This one is not. So from_formulas takes a third formula, df/dt.

The trap: this form fails at p = 0 and p = 1. The demo's last line has nan for an answer that is
right. Step loss06 changes that.

Changed: from_formulas, Loss. New: entropy, BinaryCrossEntropy, binary_cross_entropy, BCELoss.
Try: leave out the third formula. Which number of the demo becomes wrong?
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.broadcast import broadcast_tensors
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


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none").

    Raises:
        ValueError: as check_reduction.
    """
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


def entropy(xp: Any, x: Any, t: Any) -> Any:
    """-t log(x) - (1 - t) log(1 - x)."""
    return (t - 1) * xp.log1p(-x) - t * xp.log(x)


BinaryCrossEntropy = from_formulas(
    "BinaryCrossEntropy",
    entropy,
    lambda xp, x, t: (x - t) / (x * (1 - x)),
    lambda xp, x, t: xp.log1p(-x) - xp.log(x),
)


def binary_cross_entropy(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """-log of the probability that `input` gives to what `target` says: 1 (yes) or 0 (no)."""
    return BinaryCrossEntropy.apply(input, target, check_reduction(reduction))


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
    """binary_cross_entropy as a module."""


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    no = tensor([0.0])
    for p in (0.1, 0.5, 0.999):
        row = []
        for loss in (mse_loss, binary_cross_entropy):
            x = tensor([p], requires_grad=True)
            y = loss(x, no)
            y.backward()
            row.append(f"{y.item():.3f} slope {x.grad.item():.1f}")
        print(f"p = {p}: square", row[0], "| entropy", row[1])
    # -> p = 0.1: square 0.010 slope 0.2 | entropy 0.105 slope 1.1
    # -> p = 0.5: square 0.250 slope 1.0 | entropy 0.693 slope 2.0
    # -> p = 0.999: square 0.998 slope 2.0 | entropy 6.908 slope 1000.0

    # A true share of 0.3: the gradients for p and for the share.
    p, share = tensor([0.3], requires_grad=True), tensor([0.3], requires_grad=True)
    binary_cross_entropy(p, share).backward()
    print(p.grad.item(), f"{share.grad.item():.4f} = log(0.7 / 0.3)")
    # -> 0.0 0.8473 = log(0.7 / 0.3)

    # Sure and right: 0 times log(0).
    print(binary_cross_entropy(tensor([0.0, 1.0]), tensor([0.0, 1.0]), reduction="none"))
    # -> tensor([nan, nan])
