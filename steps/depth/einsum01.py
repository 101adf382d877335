"""Step einsum01: contract, the core of einsum, in the package's dress

Step 72f built einsum for two operands: each letter is of one of four kinds (batch, left, inner,
right), and sorted by kind every product is a matrix product. The package divides this in two.
`contract` takes two tensors and their names, and returns a tensor and its names; einsum, the next
step, is a loop of it over any number of operands.

permute_and_group sorts the dimensions of one operand by kind and merges those of one kind.

The trap: the result has the order batch, left, right, whatever you wished. contract returns its
names together with the result.

New: permute_and_group, contract.
Try: leave `permute` out of permute_and_group. Which of the products still work?
"""

import math

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.matmul import MatMul
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


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck

    # (names of a, names of b, names to keep), and the shapes.
    rng = np.random.default_rng(0)
    PRODUCTS = {
        ("ij", "jk", "ik"): [(2, 3), (3, 4)],
        ("bhqd", "bhkd", "bhqk"): [(2, 2, 3, 2), (2, 2, 4, 2)],
        ("qbdh", "kbdh", "bhqk"): [(3, 2, 2, 2), (4, 2, 2, 2)],
        ("ij", "k", "ijk"): [(2, 3), (4,)],
        ("abc", "cbd", "ad"): [(2, 3, 4), (4, 3, 2)],
    }
    for (a_labels, b_labels, keep), shapes in PRODUCTS.items():
        a, b = (tensor(rng.random(shape), requires_grad=True) for shape in shapes)
        c, labels = contract(a, a_labels, b, b_labels, keep)
        same = np.allclose(c.array, np.einsum(f"{a_labels},{b_labels}->{labels}", a.array, b.array))
        right = gradcheck(
            lambda a, b, n=a_labels, m=b_labels, k=keep: contract(a, n, b, m, k)[0], (a, b)
        )
        print(f"{a_labels},{b_labels}->{labels}", same, right)
    # -> ij,jk->ik True True
    # -> bhqd,bhkd->bhqk True True
    # -> qbdh,kbdh->bhqk True True
    # -> ij,k->ijk True True
    # -> abc,cbd->ad True True

    # How abc,cbd -> ad becomes a product: b and c are inner, and merged.
    print(
        permute_and_group(a, "abc", "a", "bc").shape, permute_and_group(b, "cbd", "bc", "d").shape
    )
    # -> tinytorch.Size([2, 12]) tinytorch.Size([12, 2])

    x, y = (tensor(rng.random((8, 64, 64), dtype=np.float32)) for _ in range(2))
    loop = min(timeit.repeat(lambda: np.einsum("bij,bkj->bik", x.array, y.array), number=1))
    ours = min(timeit.repeat(lambda: contract(x, "bij", y, "bkj", "bik"), number=1))
    print(f"as a matrix product: {ours / loop:.3f} of the time of NumPy's loop")  # -> ...
