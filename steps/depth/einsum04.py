"""Step einsum04: einsum: a repeated name is a diagonal

The notation has one more rule. einsum("ii->i", a) is the diagonal of a matrix, and einsum("ii",
a) its sum, the trace: both dimensions run together, so only the elements a_ii count. For "ii", step
einsum03 sums all elements: 10 for the matrix of the demo, where 5 is right. It takes each i for
itself.

Before anything else, read_operand turns each operand into one that has each name once. A diagonal
is a view (step parts05), which becomes the last dimension of the result, and its name moves there
too:

    "iji"  [2, 3, 2]  --diagonal of 0 and 2-->  "ji"  [3, 2]

A name that occurs three times takes two rounds: hence `while`.

The gradient of a diagonal lies among zeros, and that of a trace is g at each a_ii. Both come from
step parts05, and need no code here.

The trap is "ii" without an arrow. i occurs twice, so it is not in the output (step einsum02), and
the result is the trace, not the diagonal.

`trace` is the name that programs use. The trace of a product, trace(A^T B), is the sum of all a_ij
b_ij: to compute the product for its diagonal alone is n times the work.

Changed: einsum. New: read_operand, trace.
Try: einsum("ij,ij->", a, b) and trace(a.T @ b), for large matrices.
"""

import math
from typing import Any

from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.arithmetic import mul
from tinytorch.ops.matmul import MatMul, check_operands
from tinytorch.ops.reduction import sum
from tinytorch.ops.shape import permute, reshape
from tinytorch.ops.slicing import diagonal


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


def read_operand(x: Tensor, labels: str) -> tuple[Tensor, str]:
    """An operand with each label once: "ii" means the diagonal."""
    written = labels
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
    diagonal. Without "->" the output has the letters that are written once, in alphabetical order.

    Operands are contracted from left to right, each time as one matrix product.
    """
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = [read_operand(*each) for each in zip(operands, inputs.split(","), strict=True)]
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

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck

    a = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    print(
        "diagonal:", einsum("ii->i", a).tolist(), "trace:", einsum("ii", a).item(), trace(a).item()
    )
    # -> diagonal: [1.0, 4.0] trace: 5.0 5.0
    print("gradient:", grad(trace(a), a)[0].tolist())  # -> gradient: [[1.0, 0.0], [0.0, 1.0]]

    b = tensor([[0.0, 1.0], [1.0, 0.0]])
    print("of a product:", trace(a.T @ b).item(), "without it:", einsum("ij,ij->", a, b).item())
    # -> of a product: 5.0 without it: 5.0

    rng = np.random.default_rng(0)
    EQUATIONS = {"iji,j->i": [(2, 3, 2), (3,)], "iii->i": [(2, 2, 2)], "bii->b": [(3, 2, 2)]}
    for equation, shapes in EQUATIONS.items():
        tensors = [tensor(rng.random(shape), requires_grad=True) for shape in shapes]
        arrays = [each.array for each in tensors]
        same = np.allclose(einsum(equation, *tensors).array, np.einsum(equation, *arrays))
        print(equation, same, gradcheck(lambda *t, e=equation: einsum(e, *t), tensors))
    # -> iji,j->i True True
    # -> iii->i True True
    # -> bii->b True True
    print("read:", read_operand(tensor(rng.random((2, 3, 2))), "iji")[1])  # -> read: ji
    try:
        trace(tensor([1.0, 2.0]))
    except RuntimeError as error:
        print(error)  # -> trace: expected a matrix, but got tensor with dim 1
