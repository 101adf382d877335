"""Step loss01: Losses in the package's dress: mse_loss, l1_loss, reduction

Step 42 built mse_loss. Each loss of PyTorch has a `reduction`: the mean of all losses, their sum,
or all of them ("none"). The sum grows with the number of items, and would need a smaller step size;
so the mean is the default.

The second loss of the run is the absolute value, l1_loss. Its slope is 1 or -1, so all errors have
equal gradients, and one typo in the data does not move the whole fit. The demo finds the best
constant for five numbers, one of which is 30 instead of 3. For the square it is 8, the mean, far
from most of them. For the absolute value it is 3, the median.

As in step activation11 the modules need no code. LossModule has two inputs and shows no options, as
in PyTorch.

The trap: `reduction` must be a keyword here. In PyTorch two older arguments come before it, so
"sum" by position would be one of them.

Changed: mse_loss. New: check_reduction, reduced, l1_loss; LossModule, MSELoss, L1Loss. Moved: the
activations.
Try: make 30 a larger typo. Which loss notices?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule

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


@checked
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)^2."""
    return reduced((input - target).square(), reduction)


@checked
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target|."""
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
    from tinytorch.ops.creation import zeros

    importlib.import_module("tinytorch.core.printing")

    for loss in (mse_loss, l1_loss):
        error = tensor([0.1, 1.0, 10.0], requires_grad=True)
        loss(error, zeros(3), reduction="sum").backward()
        values = loss(error, zeros(3), reduction="none").tolist()
        print(f"{loss.__name__:8}", [round(v, 3) for v in values], error.grad)
    # -> mse_loss [0.01, 1.0, 100.0] tensor([ 0.2000,  2.0000, 20.0000])
    # -> l1_loss  [0.1, 1.0, 10.0] tensor([1., 1., 1.])

    # The best constant for five numbers, one of which is a typo: 30 for 3.
    data = tensor([1.0, 2.0, 3.0, 4.0, 30.0])
    for loss in (MSELoss(), L1Loss()):
        best = tensor(0.0, requires_grad=True)
        for _ in range(2000):
            loss(best.expand(5), data).backward()
            with no_grad():
                best -= 0.01 * best.grad
            best.grad = None
        print(f"{loss}: {best.item():.1f}")
    # -> MSELoss(): 8.0
    # -> L1Loss(): 3.0

    for wrong in (
        lambda: mse_loss(data, data, reduction="avg"),
        lambda: mse_loss(data, data, "sum"),
    ):
        try:
            wrong()
        except (ValueError, TypeError) as error:
            print(error)
    # -> avg is not a valid value for reduction
    # -> mse_loss() takes 2 positional arguments but 3 were given
