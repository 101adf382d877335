"""Step 71: The adjoint test

x[index] has a gradient, and its rule is short: write the gradients back to where the elements came
from. For index [0, 2, 2] and gradients [10, 20, 30] that gives [10, 0, 30], with the right shape
and no error. It is wrong: element 2 was read twice, so its gradient is 20 + 30. How could a test
have found out?

Indexing is linear: y = A x, with a matrix of zeros and ones that is never written down. So are
views, sums, expand and cat. The gradient of a linear operation is A^T g, and A^T is its adjoint:

    A = 1 0 0      y = x_0  x_2  x_2      A^T g = g_0  0  g_1 + g_2
        0 0 1
        0 0 1      (A x) . g  =  x . (A^T g)        both are the sum of all g_i A_ij x_j

So two dot products with random numbers test a forward and its way back against each other: no
matrix, no small difference eps, exact up to rounding. `adjoint_gap` is the difference of the two.

The adjoint of the adjoint is the operation itself. So such pairs are each other's backward: take
and add back, expand and sum, slice and put among zeros, cat and split.

The traps. Only linear operations pass. And the test compares two codes with each other: where both
make the same mistake, it sees none.

PyTorch has the pairs in its table of derivatives: for example index and index_put with accumulate.

New: adjoint_gap. From here on the finished modules are imported, those of the operations for the
methods that they attach to Tensor.
Try: test `lambda x: x[index] + 1`. Why does it fail, though its gradient is right?
In depth: parts01 to parts09, joining01 to joining06.
"""

from tinytorch.autograd.backward import grad
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.ops import (  # noqa: F401  (for their methods)
    arithmetic,
    comparison,
    conversion,
    gather,
    indexing,
    reduction,
)
from tinytorch.ops.creation import zeros
from tinytorch.ops.random import manual_seed, randn


def adjoint_gap(function, x):
    """(A x) . g - x . (A^T g) for a linear function A and a random g: 0 up to rounding."""
    y = function(x)
    g = randn(*y.shape).to(x.dtype)
    (back,) = grad(y, x, g)
    return ((y * g).sum() - (x * back).sum()).item()


if __name__ == "__main__":
    index, x = tensor([0, 2, 2]), tensor([1.0, 2.0, 3.0])
    g = tensor([10.0, 20.0, 30.0])
    lost = zeros(3)
    lost[index] = g
    added = zeros(3).index_add(0, index, g)
    print("written back:", lost.tolist(), "added back:", added.tolist())
    # -> written back: [10.0, 0.0, 30.0] added back: [10.0, 0.0, 50.0]
    dots = [(x[index] * g).sum(), (x * lost).sum(), (x * added).sum()]
    print("(A x) . g and x . (A^T g):", [dot.item() for dot in dots])
    # -> (A x) . g and x . (A^T g): [160.0, 100.0, 160.0]

    manual_seed(0)
    x = randn(3, 4).to(float64).requires_grad_()
    operations = {
        "x[index]": lambda x: x[index],
        "x[x > 0]": lambda x: x[x > 0],
        "expand": lambda x: x.expand(5, 3, 4),
        "x * x": lambda x: x * x,
    }
    print({name: abs(adjoint_gap(f, x)) < 1e-12 for name, f in operations.items()})
    # -> {'x[index]': True, 'x[x > 0]': True, 'expand': True, 'x * x': False}
