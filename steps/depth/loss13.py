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

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64, uint8
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.loss import LossModule, check_reduction
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
