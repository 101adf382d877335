"""Step loss04: huber_loss and smooth_l1_loss

The square is good for small errors: its slope becomes small, and so do the steps. The absolute
value is good for large errors: an outlier has no larger gradient than any other point. But near the
minimum its slope jumps between 1 and -1, and with a constant rate the fit oscillates, as the demo
shows.

The Huber loss combines both (Huber, 1964): a parabola up to delta, and its tangent beyond.

    f(d) = d^2 / 2 for |d| < delta,   delta (|d| - delta / 2) beyond
    f'(d) = d, clipped to [-delta, delta]

With near = min(|d|, delta) the value is one line, too: near (|d| - near / 2).

smooth_l1_loss is huber_loss divided by beta: its slope is 1 beyond (Girshick, 2015). So both share
one pair of formulas with a factor; only the name in the graph differs. With beta = 0 it is l1_loss.

The trap: delta has the unit of the data. 1 is right if errors of 1 are small.

Changed: Loss takes options. New: huber_value, huber_slope, Huber, SmoothL1; huber_loss,
smooth_l1_loss; HuberLoss, SmoothL1Loss.
Try: delta = 0.01 and delta = 100 for the best constant. Which two losses do you get?
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
    """l = f(x - t) for each pair of elements, and the mean or sum of all l: one node of the graph
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
        return gx, -gx


def from_formulas(name: str, value: Callable, slope: Callable) -> type[Loss]:
    """The Loss with the formulas f and df/dx, where f is of x - t: df/dt = -df/dx."""
    formulas = {"value": value, "slope": slope}
    return type(name, (Loss,), {key: staticmethod(f) for key, f in formulas.items()})


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


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.ops.creation import zeros

    importlib.import_module("tinytorch.core.printing")

    for loss in (mse_loss, l1_loss, huber_loss, smooth_l1_loss):
        error = tensor([0.1, 1.0, 10.0], requires_grad=True)
        loss(error, zeros(3), reduction="sum").backward()
        values = loss(error, zeros(3), reduction="none").tolist()
        print(f"{loss.__name__:14}", [round(v, 3) for v in values], error.grad)
    # -> mse_loss       [0.01, 1.0, 100.0] tensor([ 0.2000,  2.0000, 20.0000])
    # -> l1_loss        [0.1, 1.0, 10.0] tensor([1., 1., 1.])
    # -> huber_loss     [0.005, 0.5, 9.5] tensor([0.1000, 1.0000, 1.0000])
    # -> smooth_l1_loss [0.005, 0.5, 9.5] tensor([0.1000, 1.0000, 1.0000])

    # The best constant for five numbers, one a typo: with large steps, the last three places.
    data = tensor([1.0, 2.0, 3.0, 4.0, 30.0])
    for loss in (MSELoss(), L1Loss(), HuberLoss(), SmoothL1Loss(beta=2.0)):
        best, places = tensor(0.0, requires_grad=True), []
        for _ in range(200):
            loss(best.expand(5), data).backward()
            with no_grad():
                best -= 0.4 * best.grad
            best.grad = None
            places.append(round(best.item(), 2))
        print(f"{loss}:", places[-3:])
    # -> MSELoss(): [8.0, 8.0, 8.0]
    # -> L1Loss(): [3.04, 2.96, 3.04]
    # -> HuberLoss(): [3.0, 3.0, 3.0]
    # -> SmoothL1Loss(): [3.0, 3.0, 3.0]

    x, zero = tensor([0.5, 3.0]), zeros(2)
    print(
        huber_loss(x, zero, "sum", 2.0).item(),
        2 * smooth_l1_loss(x, zero, reduction="sum", beta=2.0).item(),
    )
    # -> 4.125 4.125
    print(smooth_l1_loss(x, zero, beta=0.0).item(), l1_loss(x, zero).item())  # -> 1.75 1.75
    for wrong in (
        lambda: huber_loss(x, zero, delta=0.0),
        lambda: smooth_l1_loss(x, zero, beta=-1.0),
    ):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> huber_loss does not support non-positive values for delta: 0.0
    # -> smooth_l1_loss does not support negative values for beta: -1.0
