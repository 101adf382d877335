"""Sums of products over named dimensions, each of them a matrix product in disguise."""

import math
import string
from typing import Any

from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import mul
from tinytorch.ops.matmul import MatMul, check_operands
from tinytorch.ops.reduction import sum
from tinytorch.ops.shape import permute, reshape
from tinytorch.ops.slicing import diagonal

# Labels for the dimensions of "...". The last dimension is 9: broadcasting aligns at the right.
DOTS = string.digits


def permute_and_group(x: Tensor, labels: str, *groups: str) -> Tensor:
    """x with its dimensions permuted to the order of the groups, and each group merged into one."""
    size = dict(zip(labels, x.array.shape, strict=True))
    order = tuple(labels.index(label) for group in groups for label in group)
    x = x if order == tuple(range(len(labels))) else permute(x, order)
    shape = tuple(math.prod(size[label] for label in group) for group in groups)
    return x if shape == x.array.shape else reshape(x, shape)


def reduce_unshared(x: Tensor, labels: str, other: Tensor, other_labels: str, keep: str):
    """Sums x over the dimensions that take no part in a product with `other`: those that only x
    has, unless they are to be kept, and those of size 1 that `other` broadcasts."""
    size = dict(zip(other_labels, other.array.shape, strict=True))
    over = [
        i
        for i, label in enumerate(labels)
        if (size.get(label, 1) != 1 and x.array.shape[i] == 1)
        or (label not in size and label not in keep)
    ]
    rest = "".join(label for i, label in enumerate(labels) if i not in over)
    return (sum(x, over) if over else x), rest


def contract(a: Tensor, a_labels: str, b: Tensor, b_labels: str, keep: str) -> tuple[Tensor, str]:
    """The product of two tensors, summed over what both have and `keep` does not name.

    Each dimension is of one of four kinds: in both and kept (batch), in both and summed over
    (inner), or in only one of them (left, right). With the dimensions permuted, and those of each
    kind but batch merged, this is a matrix product: [batch..., left, inner] @ [batch..., inner,
    right].
    """
    a, a_labels = reduce_unshared(a, a_labels, b, b_labels, keep)
    b, b_labels = reduce_unshared(b, b_labels, a, a_labels, keep)
    size = dict(zip(a_labels, a.array.shape, strict=True))
    for label, n in zip(b_labels, b.array.shape, strict=True):
        if size.setdefault(label, n) != n:
            raise RuntimeError(
                f"einsum(): subscript {label} has size {n} for one operand which does not "
                f"broadcast with previously seen size {size[label]}"
            )
    both = [label for label in a_labels if label in b_labels]
    batch = "".join(label for label in both if label in keep)
    inner = "".join(label for label in both if label not in keep)
    left = "".join(label for label in a_labels if label not in both)
    right = "".join(label for label in b_labels if label not in both)
    product = (MatMul.apply if inner else mul)(
        permute_and_group(a, a_labels, *batch, left, inner),
        permute_and_group(b, b_labels, *batch, inner, right),
    )
    labels = batch + left + right
    shape = tuple(size[label] for label in labels)
    return (product if shape == product.array.shape else reshape(product, shape)), labels


def read_operand(x: Tensor, labels: str, number: int) -> tuple[Tensor, str]:
    """Operand `number` with one label for each dimension, and each label once: "ii" means the
    diagonal.

    Raises:
        RuntimeError: the labels do not fit the tensor.
    """
    hidden = x.array.ndim - len(labels.replace("...", "", 1))
    written = labels.replace("...", DOTS[len(DOTS) - hidden :] if hidden > 0 else "", 1)
    if not set(labels.replace("...", "", 1)) <= set(string.ascii_letters):
        raise RuntimeError(f"einsum(): {labels!r}: subscripts must be in [a-zA-Z]")
    if len(written) != x.array.ndim:
        raise RuntimeError(
            f"einsum(): the number of subscripts in {labels!r} does not match the number of "
            f"dimensions ({x.array.ndim}) for operand {number}"
        )
    for label in sorted(set(written)):
        while written.count(label) > 1:
            i, j = written.index(label), written.rindex(label)
            if x.array.shape[i] != x.array.shape[j]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {number} but the sizes "
                    f"don't match, {x.array.shape[j]} != {x.array.shape[i]}"
                )
            x = diagonal(x, 0, i, j)
            written = written[:i] + written[i + 1 : j] + written[j + 1 :] + label
    return x, written


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products over named dimensions: `einsum("bij,bjk->bik", a, b)` is a batched product.

    A letter names a dimension. One that the output does not have is summed over; one that is in
    several operands runs through all of them together; one that an operand has twice is its
    diagonal. "..." stands for any further dimensions, which are broadcast. Without "->" the output
    has the letters that are written once, in alphabetical order.

    Operands are contracted from left to right, each time as one matrix product.

    Raises:
        RuntimeError: the equation is not well formed, or does not fit the operands.
        TypeError: it is not a string.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    if not isinstance(equation, str):
        raise TypeError(f"einsum(): the equation must be a str, not {type(equation).__name__}")
    check_operands("einsum", *operands)
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    if len(parts) != len(operands):
        fewer = "fewer" if len(operands) < len(parts) else "more"
        raise RuntimeError(
            f"einsum(): {fewer} operands were provided than specified in the equation"
        )
    terms = [read_operand(*each, i) for i, each in enumerate(zip(operands, parts, strict=True))]
    given = sorted({label for _, labels in terms for label in labels})
    dots = "".join(label for label in given if label in DOTS)
    if arrow:
        output = output.replace("...", dots, 1)
    else:
        output = dots + "".join(label for label in given if inputs.count(label) == 1)
    if len(set(output)) != len(output) or not set(output) <= set(given):
        raise RuntimeError(
            f"einsum(): each output subscript must appear once, and in an operand: {equation!r}"
        )
    x, labels = terms[0]
    for i in range(1, len(terms)):
        later = "".join(labels for _, labels in terms[i + 1 :])
        x, labels = contract(x, labels, *terms[i], output + later)
    over = [i for i, label in enumerate(labels) if label not in output]
    labels = "".join(label for label in labels if label in output)
    x = sum(x, over) if over else x
    return x if labels == output else permute(x, tuple(labels.index(label) for label in output))


@tensor_method("trace")
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix.

    Raises:
        RuntimeError: `input` is not a matrix.
    """
    check_operands("trace", input)
    if input.array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.array.ndim}")
    return sum(diagonal(input))
