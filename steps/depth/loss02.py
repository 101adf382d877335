"""Step loss02: Losses: warning about broadcast shapes

A network returns [n, 1], one number for each of n rows. The targets come from a file as [n]. The
loss of step loss01 accepts both and broadcasts them to [n, n]: every output is compared with every
target. The best output is then the mean of all targets, for each row. In the demo the loss goes
down and ends at the variance of the targets, and the network has learned a constant.

This is not an error, because some programs broadcast on purpose. But it is usually a mistake. So
`pair`, which the losses of step loss01 now call, warns if the shapes differ.

    pair(input, target)     shapes: a warning, then broadcast
                            types:  one for both, by the rules of step 61c
                            integers: refused by mse_loss, since they have no gradient

stacklevel=3 makes Python show the line that called the loss, not our own.

The trap: a warning is shown once for each line, and is easily missed in the output of a long
training. Turn warnings into errors while you write a program: `python -W error`.

Changed: mse_loss, l1_loss. New: pair.
Try: python -W error with this step's training, without catch_warnings.
"""

import importlib
import warnings

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.broadcast import broadcast_tensors

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
    input, target = pair(input, target)
    return reduced((input - target).square(), reduction)


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
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.creation import linspace

    importlib.import_module("tinytorch.core.printing")

    x = linspace(-1, 1, 20).reshape(20, 1)
    target = 3 * x + 2

    def train(target):
        line = Linear(1, 1)
        for _ in range(300):
            loss = mse_loss(line(x), target)
            loss.backward()
            with no_grad():
                for param in line.parameters():
                    param -= 0.1 * param.grad
            line.zero_grad()
        slope, offset = abs(line.weight.item()), line.bias.item()
        print(f"loss {loss.item():.2f}: {slope:.1f} x + {offset:.1f}")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(target.reshape(20))
    # -> loss 3.32: 0.0 x + 2.0
    print(caught[0].message)
    # -> Using a target size (20,) that is different to the input size (20, 1): is it meant?
    variance = (target - target.mean()).square().mean().item()
    print(f"the variance of the targets: {variance:.2f}")  # -> the variance of the targets: 3.32
    train(target)  # -> loss 0.00: 3.0 x + 2.0

    half = tensor([1.0, 2.0]).half()
    print(
        mse_loss(half, tensor([1.0, 4.0])).dtype,
        l1_loss(tensor([1, 2]), tensor([1, 4]), reduction="sum"),
    )
    # -> tinytorch.float32 tensor(2)
    try:
        mse_loss(tensor([1, 2]), tensor([1, 4]))
    except NotImplementedError as error:
        print(error)
    # -> this loss is not implemented for tinytorch.int64
