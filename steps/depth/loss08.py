"""Step loss08: Binary cross entropy with logits in the package's dress: pos_weight

Step 43 built this loss: log(1 + exp(x)) - t x, which is exact where a sigmoid before a logarithm
has lost the number. Its slope is the prediction minus the target.

What is new is pos_weight. If one item in a hundred is a yes, a network that always says no is
nearly right. pos_weight multiplies the loss of each yes. For that the loss is written with
softplus(-x) = -log(p) (step activation04).

The trap: a Sigmoid at the end of the network and this loss apply the sigmoid twice, without an
error. The network must return logits; for probabilities, apply sigmoid to them. (PyTorch:
BCEWithLogitsLoss.)

Changed: check_target. New: WithLogits, binary_cross_entropy_with_logits, BCEWithLogitsLoss.
Try: a hundred items, one yes, pos_weight 99: which logit is the best constant?
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule, softplus
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.elementwise import sigmoid_of
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


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    no = tensor([0.0])
    logit = tensor([200.0], requires_grad=True)
    for name, loss in (
        ("after a sigmoid", lambda: binary_cross_entropy(logit.sigmoid(), no)),
        ("with logits", lambda: binary_cross_entropy_with_logits(logit, no)),
    ):
        logit.grad = None
        value = loss()
        value.backward()
        print(f"{name}: {value.item()}, gradient {logit.grad.item()}")
    # -> after a sigmoid: 100.0, gradient 0.0
    # -> with logits: 200.0, gradient 1.0

    x, t = tensor([-1.0, 0.5], requires_grad=True), tensor([0.0, 1.0])
    one, two = binary_cross_entropy(x.sigmoid(), t), binary_cross_entropy_with_logits(x, t)
    print(f"the same where both are right: {one.item():.5f} = {two.item():.5f}")
    # -> the same where both are right: 0.39367 = 0.39367

    unsure, yes = tensor([0.0]), tensor([1.0])
    once = binary_cross_entropy_with_logits(unsure, yes)
    three = binary_cross_entropy_with_logits(unsure, yes, pos_weight=tensor([3.0]))
    print(f"3 * {once.item():.4f} = {three.item():.4f}")  # -> 3 * 0.6931 = 2.0794
    loss = BCEWithLogitsLoss(pos_weight=tensor([3.0]), reduction="sum")
    print(loss, list(loss.state_dict()), loss(unsure, yes).item() == three.item())
    # -> BCEWithLogitsLoss() ['pos_weight'] True
    print(f"{binary_cross_entropy_with_logits(x, t, weight=tensor([2.0, 2.0])).item():.5f}")
    # -> 0.78734
