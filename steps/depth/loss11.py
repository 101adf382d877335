"""Step loss11: Cross entropy: checking class labels

Label files contain errors: a class 3 where there are three classes (0, 1, 2), or -1 for "unknown".
NllLoss of step loss10 reads the number at the position row * c + class. So class 3 is the first
number of the next row, and -1 the last of the row before: the demo gets a loss for both. The
gradients of each row should add up to 0 (softmax minus one_hot); here the wrong row gets the -1.
Only a position beyond the last row raises an error, about an index that is not in the file.

So `chosen` checks the classes first, and raises IndexError with the class that is wrong.

Two comparisons for each label would make two temporary arrays. One pass is enough: the bits of a
negative number, read as an unsigned one, are a huge number; -1 is 2^64 - 1. So the maximum of the
unsigned view checks both bounds. Only if it fails does `chosen` look for the wrong label.

Labels must be int64, or uint8 (masks of images are bytes). Floats are refused: 1.0 might be a
class, or a probability (step loss15).

The trap: on a GPU the check makes the program wait for the result in each step. PyTorch's kernel
asserts instead, and its error appears later, at another line.

Changed: cross_entropy. New: chosen.
Try: measure `(values < 0).any() or (values >= c).any()` against the view, for a million labels.
"""

import importlib

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.loss import LossModule, check_reduction
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def chosen(rows: Tensor, target: Tensor) -> Tensor:
    """The class of each row.

    Raises:
        IndexError: for a class that does not exist.
        RuntimeError: for a target that is not int64 or uint8.
    """
    if target.dtype not in (int64, uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype!r}")
    index = target.long()
    c, values = rows.array.shape[1], index.array
    # Viewed as unsigned, negative numbers are the largest: one maximum checks both bounds.
    if values.size and values.view("u8").max() >= c:
        wrong = (values < 0) | (values >= c)
        raise IndexError(f"Target {int(values[wrong][0])} is out of bounds.")
    return index


@checked
def cross_entropy(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """-log of the probability that softmax(input) gives to the right class.

    Args:
        input: [n, c]: any numbers, the higher the more probable.
        target: [n]: classes.
    Raises:
        IndexError: for a class that does not exist.
        RuntimeError: where types do not fit.
    """
    reduction = check_reduction(reduction)
    index = chosen(input, target)
    return NllLoss.apply(input, index, None, reduction, target.array.shape, False)


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module."""


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
    target = tensor([0, 1, 0])

    for wrong in (3, -1):
        losses = NllLoss.apply(x, tensor([0, wrong, 1]), None, "none", (3,), False)
        x.grad = None
        losses.sum().backward()
        sums = [round(value) for value in x.grad.sum(1).tolist()]
        print(
            f"class {wrong}: loss {losses[1].item():.4f}; the gradients of the rows add up to", sums
        )
    # -> class 3: loss 2.0134; the gradients of the rows add up to [0, 1, -1]
    # -> class -1: loss 2.0134; the gradients of the rows add up to [-1, 1, 0]

    def refused(target):
        try:
            cross_entropy(x, target)
        except (IndexError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")

    refused(tensor([0, 1, 3]))  # -> IndexError: Target 3 is out of bounds.
    refused(tensor([0, 1, -1]))  # -> IndexError: Target -1 is out of bounds.
    refused(tensor([0.0, 1.0, 0.0]))
    # -> RuntimeError: expected target dtype to be Long or Byte, but got tinytorch.float32
    byte = target.to(uint8)
    print(cross_entropy(x, byte).item() == cross_entropy(x, target).item(), np.int64(-1).view("u8"))
    # -> True 18446744073709551615
