"""Step einsum03: einsum: summing before the product

"ij,k->" is the sum of all products a_ij c_k. Step einsum02 writes them all: for a matrix of 300 x
300 and a vector of 300 that is 27 million numbers, and then they are summed. But the sum can be
taken apart:

    sum over i, j, k of a_ij c_k   =   (sum over i, j of a_ij) * (sum over k of c_k)

A name that only one of the two has, and that is not kept, is summed over before the product. After
that, each name which is in one tensor only is kept, and `left` and `right` are what their names
say.

If no name is summed over in both, the product has no sum at all: "ij,kl->ijkl" is [left, 1] times
[1, right]. An elementwise multiplication with broadcasting does the same, and is quicker than a
matrix product whose rows have one element.

The gradient follows without a line: the sum's gradient is repeated, as ever.

The trap: "summed first" is right for sums of products only, since a factor can be drawn out of a
sum. Of a maximum of products that is not true.

Changed: contract. New: reduce_unshared.
Try: let keep be "" in the first call of reduce_unshared. Which equation fails?
"""

import math
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.arithmetic import mul
from tinytorch.ops.matmul import MatMul
from tinytorch.ops.reduction import sum
from tinytorch.ops.shape import permute, reshape


def permute_and_group(x: Tensor, labels: str, *groups: str) -> Tensor:
    """x with its dimensions permuted to the order of the groups, and each group merged into one."""
    size = dict(zip(labels, x.array.shape, strict=True))
    order = tuple(labels.index(label) for group in groups for label in group)
    x = x if order == tuple(range(len(labels))) else permute(x, order)
    shape = tuple(math.prod(size[label] for label in group) for group in groups)
    return x if shape == x.array.shape else reshape(x, shape)


def reduce_unshared(x: Tensor, labels: str, other_labels: str, keep: str) -> tuple[Tensor, str]:
    """Sums x over the dimensions that only x has, unless they are to be kept: they take no part in
    a product with the other."""
    over = [i for i, label in enumerate(labels) if label not in other_labels and label not in keep]
    rest = "".join(label for i, label in enumerate(labels) if i not in over)
    return (sum(x, over) if over else x), rest


def contract(a: Tensor, a_labels: str, b: Tensor, b_labels: str, keep: str) -> tuple[Tensor, str]:
    """The product of two tensors, summed over what both have and `keep` does not name.

    Each dimension is of one of four kinds: in both and kept (batch), in both and summed over
    (inner), or in only one of them (left, right). With the dimensions permuted, and those of each
    kind but batch merged, this is a matrix product: [batch..., left, inner] @ [batch..., inner,
    right].
    """
    a, a_labels = reduce_unshared(a, a_labels, b_labels, keep)
    b, b_labels = reduce_unshared(b, b_labels, a_labels, keep)
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


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sums of products over named dimensions: `einsum("bij,bjk->bik", a, b)` is a batched product.

    A letter names a dimension. One that the output does not have is summed over; one that is in
    several operands runs through all of them together. Without "->" the output has the letters
    that are written once, in alphabetical order.

    Operands are contracted from left to right, each time as one matrix product.

    Raises:
        RuntimeError: an operand has a letter twice.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = list(zip(operands, inputs.split(","), strict=True))
    if any(len(set(labels)) < len(labels) for _, labels in terms):
        raise RuntimeError(f"einsum(): an operand has a name twice: {equation!r}")
    given = sorted({label for _, labels in terms for label in labels})
    if not arrow:
        output = "".join(label for label in given if inputs.count(label) == 1)
    x, labels = terms[0]
    for i in range(1, len(terms)):
        later = "".join(labels for _, labels in terms[i + 1 :])
        x, labels = contract(x, labels, *terms[i], output + later)
    over = [i for i, label in enumerate(labels) if label not in output]
    labels = "".join(label for label in labels if label in output)
    x = sum(x, over) if over else x
    return x if labels == output else permute(x, tuple(labels.index(label) for label in output))


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck

    rng = np.random.default_rng(0)
    EQUATIONS = {
        "ij,k->": [(2, 3), (4,)],
        "ij,jk->k": [(2, 3), (3, 4)],
        "ij,kl->ijkl": [(2, 3), (2, 2)],
        "bi,bi->bi": [(2, 3), (2, 3)],
        "ij,jk,kl->il": [(2, 3), (3, 2), (2, 2)],
    }
    for equation, shapes in EQUATIONS.items():
        tensors = [tensor(rng.random(shape), requires_grad=True) for shape in shapes]
        arrays = [each.array for each in tensors]
        same = np.allclose(einsum(equation, *tensors).array, np.einsum(equation, *arrays))
        print(equation, same, gradcheck(lambda *t, e=equation: einsum(e, *t), tensors))
    # -> ij,k-> True True
    # -> ij,jk->k True True
    # -> ij,kl->ijkl True True
    # -> bi,bi->bi True True
    # -> ij,jk,kl->il True True

    # What is left of "ij,jk->k" before the product: the rows of a are summed first.
    a = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print("summed first:", reduce_unshared(a, "ij", "jk", "k")[0].tolist())
    # -> summed first: [5.0, 7.0, 9.0]

    A, v = tensor(rng.random((100, 100), np.float32)), tensor(rng.random(100, np.float32))
    all_products = min(timeit.repeat(lambda: sum(einsum("ij,k->ijk", A, v)), number=1))
    summed_first = min(timeit.repeat(lambda: einsum("ij,k->", A, v), number=1))
    print(
        f"a million products: summed first, {summed_first / all_products:.3f} of the time"
    )  # -> ...
