"""Step einsum05: einsum: ... for any number of dimensions

A function for matrices should also take batches of them, whatever their number of dimensions:
matmul does. With names, each of them needs an equation of its own, "ij,jk->ik", "bij,bjk->bik", and
so on.

    einsum("...ij,...jk->...ik", a, b)       "..." stands for all further dimensions

read_operand counts how many are hidden behind the dots and gives them names. Letters are taken, so
they are digits. Broadcasting aligns at the right, so the last hidden dimension is 9, the one before
it is 8:

    a [5, 2, 3]     "...ij"  ->  "9ij"           9 is in both, 8 only in b
    b [4, 5, 3, 2]  "...jk"  ->  "89jk"

And they are broadcast: a size of 1 meets any size. That is the second change. If x has size 1 where
the other has more, this dimension takes no part in the product: it is summed over, which for size 1
only removes it, and is then the other's alone. So nothing is repeated in memory, and the gradient
is right, since the product's gradient sums over what only the other has.

In the output, "..." is replaced by all digits that occur. Without "->" they come first.

The trap: "..." in the inputs and not in the output means that the batch is summed over.

Changed: reduce_unshared, contract, read_operand, einsum. New: DOTS.
Try: number the hidden dimensions from the left. Which equation of the demo fails?
"""

import math
import string
from typing import Any

from tinytorch.core.tensor import Tensor, tensor, tensor_method
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
    size = dict(zip(a_labels + b_labels, a.array.shape + b.array.shape, strict=True))
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


def read_operand(x: Tensor, labels: str) -> tuple[Tensor, str]:
    """An operand with one label for each dimension, and each label once: "ii" means the
    diagonal."""
    hidden = x.array.ndim - len(labels.replace("...", "", 1))
    written = labels.replace("...", DOTS[len(DOTS) - hidden :] if hidden > 0 else "", 1)
    for label in sorted(set(written)):
        while written.count(label) > 1:
            i, j = written.index(label), written.rindex(label)
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
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = [read_operand(*each) for each in zip(operands, inputs.split(","), strict=True)]
    given = sorted({label for _, labels in terms for label in labels})
    dots = "".join(label for label in given if label in DOTS)
    if arrow:
        output = output.replace("...", dots, 1)
    else:
        output = dots + "".join(label for label in given if inputs.count(label) == 1)
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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck

    rng = np.random.default_rng(0)
    EQUATIONS = {
        "...ij,...jk->...ik": [(5, 2, 3), (4, 5, 3, 2)],
        "...i,...i->...": [(2, 1, 3), (4, 3)],
        "...i->i...": [(2, 4, 3)],
        "i...,...": [(2, 3), (3,)],
        "b...,b->...": [(2, 1, 3), (2,)],
    }
    for equation, shapes in EQUATIONS.items():
        tensors = [tensor(rng.random(shape), requires_grad=True) for shape in shapes]
        result = einsum(equation, *tensors)
        same = np.allclose(result.array, np.einsum(equation, *(each.array for each in tensors)))
        right = gradcheck(lambda *t, e=equation: einsum(e, *t), tensors)
        print(equation, list(result.shape), same, right)
    # -> ...ij,...jk->...ik [4, 5, 2, 2] True True
    # -> ...i,...i->... [2, 4] True True
    # -> ...i->i... [3, 2, 4] True True
    # -> i...,... [3, 2] True True
    # -> b...,b->... [1, 3] True True

    a, b = tensor(rng.random((5, 2, 3))), tensor(rng.random((4, 5, 3, 2)))
    print("names:", read_operand(a, "...ij")[1], read_operand(b, "...jk")[1])  # -> names: 9ij 89jk
    one = tensor(rng.random((1, 3)))
    print("of size 1:", reduce_unshared(one, "ij", tensor(rng.random((5, 3))), "ij", "ij")[1])
    # -> of size 1: j
