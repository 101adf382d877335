"""Step loss03: A loss as one node

mse_loss of step loss02 leaves three nodes in the graph: difference, square, mean. Most of them make
an array as large as the input in forward, and another in backward. The demo counts the nodes and
measures the time. And in float16 the square overflows before the mean is taken.

Such a loss is a function of each pair of elements, and then a mean. Its gradients follow from the
formula for one pair:

    L = 1/n sum of f(x_i - t_i)       dL/dx_i = g/n f'(x_i - t_i)       dL/dt_i = -dL/dx_i

So one Function, Loss, serves for all of them, and a loss is two formulas: its value and its slope.
from_formulas makes a class of the two. The mean divides by `count`, and so does the gradient.

`wide` converts float16 to float32; the result is rounded once, at the end.

The trap: a target is usually data and requires no gradient. Then `ctx.edges[1]` is None, and -gx is
not computed. But a target can be the output of another network, and then needs its gradient.

`saves = 0, 1` declares that x and t are kept, arguments 0 and 1 (step node02).

Changed: mse_loss. New: Loss, from_formulas, Mse.
Try: leave out `/ ctx.count` in backward. What would a user notice?
"""

import importlib
import timeit
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

    def forward(ctx, x: Any, t: Any, reduction: str) -> Any:
        ctx.save_for_backward(x, t)
        losses = ctx.value(ctx.xp, wide(x), wide(t))
        ctx.count = losses.size if reduction == "mean" else 1
        losses = losses if reduction == "none" else losses.sum() / ctx.count
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, t = ctx.saved
        g = g if ctx.count == 1 else g / ctx.count
        gx = g * ctx.slope(ctx.xp, x, t)
        if ctx.edges[1] is None:
            return gx
        return gx, -gx


def from_formulas(name: str, value: Callable, slope: Callable) -> type[Loss]:
    """The Loss with the formulas f and df/dx, where f is of x - t: df/dt = -df/dx."""
    formulas = {"value": value, "slope": slope}
    return type(name, (Loss,), {key: staticmethod(f) for key, f in formulas.items()})


Mse = from_formulas("MseLoss", lambda xp, x, t: xp.square(x - t), lambda xp, x, t: 2 * (x - t))


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


class LossModule(FunctionModule):
    """A module that compares two inputs, such as an answer and the truth."""

    _inputs = 2

    def extra_repr(self) -> str:
        return ""


class MSELoss(LossModule, function=mse_loss):
    """mse_loss as a module."""


class L1Loss(LossModule, function=l1_loss):
    """l1_loss as a module."""


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")

    def nodes(y):
        found, node = [], y.grad_fn
        while node and type(node).__name__ != "AccumulateGrad":
            found.append(type(node).__name__)
            node = node.next_functions[0][0]
        return found

    def three(x, t):
        return (x - t).square().mean()

    manual_seed(0)
    x, t = randn(1000, 300, requires_grad=True), randn(1000, 300)
    print(nodes(three(x, t)), nodes(mse_loss(x, t)))  # -> ['Mean', 'Pow', 'Sub'] ['MseLoss']

    def gradient(loss):
        x.grad = None
        loss(x, t).backward()
        return x.grad

    same = (gradient(three) - gradient(mse_loss)).abs().max().item()
    print("same gradient:", same < 1e-9)  # -> same gradient: True
    one, many = (min(timeit.repeat(lambda f=f: gradient(f), number=10)) for f in (mse_loss, three))
    print(f"one node takes {one / many:.2f} of the time of three")  # -> ...
    half = tensor([300.0, 0.0]).half()
    print("in float16:", three(half, half * 0).item(), "and", mse_loss(half, half * 0).item())
    # -> in float16: inf and 44992.0
    mse_loss(x, t.requires_grad_(), reduction="none").sum().backward()
    print("both:", bool((t.grad == -2 * (x - t)).all()))  # -> both: True
