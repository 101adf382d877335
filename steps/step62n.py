"""Step 62n: einsum, one notation for all products

Which dimensions are paired in a product, and which are summed over? `@` decides by position: the
last of one with the second to last of the other. The attention of a later stage has four
dimensions, [batch, head, query, feature], and positions become a puzzle. Einstein's notation gives
the dimensions names instead:

    einsum("ij,jk->ik", a, b)           c_ik = sum over j of a_ij b_jk: a matrix product
    einsum("bqd,bkd->bqk", q, k)        each query with each key, in every sample of the batch
    einsum("ij->j", a)                  what the output does not name is summed over
    einsum("ii", a)                     a name that occurs twice is a diagonal: here the trace
    einsum("...ij,...jk->...ik", a, b)  "..." is any number of dimensions, and broadcasts

It looks like a loop over all names, and for many equations NumPy's own einsum is such a loop. But
each name in a product of two tensors is of one of four kinds:

    batch   in both, and kept           left    only in the first, and kept
    inner   in both, and summed over    right   only in the second, and kept

Sort the dimensions by kind, merge those of left, of inner and of right, and you have [batch, left,
inner] times [batch, inner, right]: a matrix product, which is fast and has its gradient already.
That is all `contract` does. A name that only one of the two has, and that is not kept, is summed
over first, which saves multiplications: "ij,k->" never makes the products a_ij c_k.

The trap: with three operands the order decides the cost. "ij,jk,kl->il" from left to right is
(A B) C. If C is a vector, A (B C) is far less work. einsum goes from left to right, as PyTorch does
unless opt_einsum is installed: write the cheap pair first.

Changed: the module of matrix products is imported. New: contract, einsum, trace.
Try: leave `permute` out of `permute_and_group`. "ij,jk->ik" still works. Which equation does not?
"""

import math
import string
from typing import Any

from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.arithmetic import mul
from tinytorch.ops.matmul import MatMul, check_operands
from tinytorch.ops.parts import diagonal
from tinytorch.ops.reduction import sum
from tinytorch.ops.shape import permute, reshape

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
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
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


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck

    a = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    print("product:", einsum("ij,jk->ik", a, b).tolist())  # -> product: [[5.0, 11.0], [14.0, 23.0]]
    print("transposed:", einsum("ij,jk->ki", a, b).tolist())
    # -> transposed: [[5.0, 14.0], [11.0, 23.0]]
    print("columns:", einsum("ij->j", a).tolist())  # -> columns: [5.0, 7.0, 9.0]
    print("without ->, alphabetical:", einsum("ba", a).tolist())
    # -> without ->, alphabetical: [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    square = einsum("ij,jk->ik", a, b)
    print("diagonal:", einsum("ii->i", square).tolist(), "trace:", einsum("ii", square).item())
    # -> diagonal: [5.0, 23.0] trace: 28.0
    print("trace:", trace(square).item())  # -> trace: 28.0

    # Each kind of name once: b batch, i left, j inner, k right.
    rng = np.random.default_rng(0)
    EQUATIONS = {
        "bij,bjk->bik": [(2, 2, 3), (2, 3, 2)],
        "bhqd,bhkd->bhqk": [(1, 2, 3, 2), (1, 2, 2, 2)],
        "...i,...i->...": [(2, 1, 3), (4, 3)],
        "ij,k->": [(2, 3), (4,)],
        "iji,j->i": [(2, 3, 2), (3,)],
        "ij,jk,kl->il": [(2, 3), (3, 2), (2, 2)],
    }
    for equation, shapes in EQUATIONS.items():
        arrays = [rng.random(shape) for shape in shapes]
        tensors = [tensor(array, requires_grad=True) for array in arrays]
        same = np.allclose(
            einsum(equation, *tensors).detach().numpy(), np.einsum(equation, *arrays)
        )
        print(equation, same, gradcheck(lambda *t, e=equation: einsum(e, *t), tensors))
        # -> bij,bjk->bik True True
        # -> bhqd,bhkd->bhqk True True
        # -> ...i,...i->... True True
        # -> ij,k-> True True
        # -> iji,j->i True True
        # -> ij,jk,kl->il True True

    for equation in ("ij,jk", "ijk", "ij->iz", "i?"):
        try:
            einsum(equation, a, a) if "," in equation else einsum(equation, a)
        except RuntimeError as error:
            print(error)
            # -> einsum(): subscript j has size 2 ... previously seen size 3
            # -> einsum(): the number of subscripts in 'ijk' does not match ... (2) for operand 0
            # -> einsum(): each output subscript must appear once, and in an operand: 'ij->iz'
            # -> einsum(): 'i?': subscripts must be in [a-zA-Z]

    # The loop that it looks like, and the matrix product that it is.
    x, y = (tensor(rng.random((8, 64, 64), dtype=np.float32)) for _ in range(2))
    loop = timeit.timeit(lambda: np.einsum("bij,bkj->bik", x.array, y.array), number=3)
    ours = timeit.timeit(lambda: einsum("bij,bkj->bik", x, y), number=3)
    print(f"as a matrix product: {ours / loop:.3f} of the time of NumPy's loop")  # -> ...

    # (A B) v makes a matrix of 200 x 200 first; A (B v) only vectors.
    A, B, v = (tensor(rng.random(shape, dtype=np.float32)) for shape in [(200, 200)] * 2 + [(200,)])
    costly = timeit.timeit(lambda: einsum("ij,jk,k->i", A, B, v), number=20)
    cheap = timeit.timeit(lambda: einsum("jk,k,ij->i", B, v, A), number=20)
    print(f"the vector first: {cheap / costly:.2f} of the time")  # -> ...
