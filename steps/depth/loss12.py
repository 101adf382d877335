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

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.loss import LossModule, check_reduction
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
