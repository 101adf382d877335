"""Step einsum02: einsum for any number of operands

contract takes two tensors, and gives its result in an order of its own. einsum takes the equation
of step 72f for any number of tensors:

    einsum("ij,jk,kl->il", a, b, c)     three of them in a row

The operands are contracted from left to right. A name must not be summed away while a later operand
still needs it, so contract keeps what the output has, and all names that come later. At the end
what is left over is summed, and the dimensions are permuted into the order of the output.

Without "->" the output has the names that occur once, in alphabetical order. "ij,jk" is a product,
because i and k occur once. And "ba" is a transpose: this rule surprises everyone once.

A name that one operand has twice, as in "ii", means a diagonal. It is refused until step einsum04.

The trap: with three operands the order decides the cost. "ij,jk,k->i" from left to right is (A B)
v, a product of matrices. A (B v) is far less work. PyTorch goes from left to right as well, unless
the package opt_einsum is installed: write the cheap pair first.

New: einsum.
Try: leave `+ later` out. Which equation fails?
"""

import math
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
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


def contract(a: Tensor, a_labels: str, b: Tensor, b_labels: str, keep: str) -> tuple[Tensor, str]:
    """The product of two tensors, summed over what both have and `keep` does not name.

    Each dimension is of one of four kinds: in both and kept (batch), in both and summed over
    (inner), or in only one of them (left, right). With the dimensions permuted, and those of each
    kind but batch merged, this is a matrix product: [batch..., left, inner] @ [batch..., inner,
    right].
    """
    size = dict(zip(a_labels + b_labels, a.array.shape + b.array.shape, strict=True))
    both = [label for label in a_labels if label in b_labels]
    batch = "".join(label for label in both if label in keep)
    inner = "".join(label for label in both if label not in keep)
    left = "".join(label for label in a_labels if label not in both)
    right = "".join(label for label in b_labels if label not in both)
    product = MatMul.apply(
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

    a = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    print("product:", einsum("ij,jk->ik", a, b).tolist())  # -> product: [[5.0, 11.0], [14.0, 23.0]]
    print("transposed:", einsum("ij, jk -> ki", a, b).tolist())
    # -> transposed: [[5.0, 14.0], [11.0, 23.0]]
    print("columns:", einsum("ij->j", a).tolist(), "all:", einsum("ij->", a).item())
    # -> columns: [5.0, 7.0, 9.0] all: 21.0
    print("without ->:", einsum("ij,jk", a, b).tolist(), einsum("ba", a).tolist())
    # -> without ->: [[5.0, 11.0], [14.0, 23.0]] [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]

    rng = np.random.default_rng(0)
    EQUATIONS = {
        "bhqd,bhkd->bhqk": [(1, 2, 3, 2), (1, 2, 2, 2)],
        "ij,k->": [(2, 3), (4,)],
        "ij,jk,kl->il": [(2, 3), (3, 2), (2, 2)],
        "ij,ij,ij->j": [(2, 3), (2, 3), (2, 3)],
    }
    for equation, shapes in EQUATIONS.items():
        tensors = [tensor(rng.random(shape), requires_grad=True) for shape in shapes]
        arrays = [each.array for each in tensors]
        same = np.allclose(einsum(equation, *tensors).array, np.einsum(equation, *arrays))
        print(equation, same, gradcheck(lambda *t, e=equation: einsum(e, *t), tensors))
    # -> bhqd,bhkd->bhqk True True
    # -> ij,k-> True True
    # -> ij,jk,kl->il True True
    # -> ij,ij,ij->j True True

    # (A B) v makes a matrix of 200 x 200 first; A (B v) only vectors.
    A, B, v = (tensor(rng.random(shape, dtype=np.float32)) for shape in [(200, 200)] * 2 + [(200,)])
    costly = min(timeit.repeat(lambda: einsum("ij,jk,k->i", A, B, v), number=5))
    cheap = min(timeit.repeat(lambda: einsum("jk,k,ij->i", B, v, A), number=5))
    print(f"the vector first: {cheap / costly:.2f} of the time")  # -> ...
    try:
        einsum("ii", A)
    except RuntimeError as error:
        print(error)  # -> einsum(): an operand has a name twice: 'ii'
