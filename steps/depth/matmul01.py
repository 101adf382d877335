"""Step matmul01: The product of two matrices, again

Step 61a laid the matrix product aside. Without it, a layer with m inputs and p outputs, for n
samples, is [n, m, 1] times [m, p], summed over m: n m p products are written to memory, to be read
once. The demo measures what that costs. A matrix product adds them up where they arise, and
training spends most of its time in it:

    C = A B,      c_ij = a_i1 b_1j + a_i2 b_2j + ... + a_im b_mj

What is the derivative? Let g_ij tell how much the loss changes with c_ij. The element a_ik is in
the whole row i of C: in c_ij with the factor b_kj. All these ways count, so they are added:

    dL/da_ik = sum over j of g_ij b_kj,   that is   dL/dA = G B^T
    dL/db_kj = sum over i of a_ik g_ij,   that is   dL/dB = A^T G

You need not learn them by heart, for the shapes remember them: A is [n, m], B is [m, p], G is
[n, p], and the only product of G and B that can be [n, m] is G B^T.

Each gradient needs the other factor. So forward keeps A only if B needs a gradient, and B only if A
does: the data that enters the first layer of a network needs none, and dL/dA is not computed there.

The trap: the shapes do not help with square matrices. G B in place of G B^T fits as well, and is
wrong.

`saves = 0, 1` declares which arguments are kept, so no call has to look for them (step node02).

Changed: a new module, matmul.py, begins. New: MatMul, matmul, and the operator @.
Try: return the gradients with g.T in place of g. Which of the shapes do not fit?
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)


class MatMul(Function):
    """C = A B;   dL/dA = G B^T,   dL/dB = A^T G, where G = dL/dC.

    c_ij = sum over k of a_ik b_kj: a_ik is in the whole row i of C, each time with another b_kj.
    So dL/da_ik = sum over j of g_ij b_kj, a matrix product again. The shapes confirm it:
    [n, m] [m, p] = [n, p], and the only product of G [n, p] and B of shape [n, m] is G B^T.
    """

    saves = 0, 1

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed
        ctx.save_for_backward(None if edge_b is None else a, None if edge_a is None else b)
        return a @ b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        ga = None if b is None else g @ b.T
        gb = None if a is None else a.T @ g
        return ga, gb


@tensor_method("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product `input @ other`: [n, m] and [m, p] give [n, p]."""
    return MatMul.apply(input, other)


if __name__ == "__main__":
    import timeit

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    A = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    B = tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]], requires_grad=True)
    C = A @ B
    print("C =", C.tolist())  # -> C = [[5.0, 11.0], [14.0, 23.0]]
    print("as a sum:", (A.unsqueeze(-1) * B).sum(1).tolist())
    # -> as a sum: [[5.0, 11.0], [14.0, 23.0]]

    # The loss is c_00 alone: row 0 of A and column 0 of B are each other's gradient.
    ga, gb = grad(C, (A, B), tensor([[1.0, 0.0], [0.0, 0.0]]))
    print("dL/dA =", ga.tolist())  # -> dL/dA = [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    print("dL/dB =", gb.tolist())  # -> dL/dB = [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]

    rng = np.random.default_rng(0)
    a, b = (tensor(rng.random(shape), requires_grad=True) for shape in [(2, 3), (3, 4)])
    print("derivatives:", gradcheck(matmul, (a, b)), gradgradcheck(matmul, (a, b)))
    # -> derivatives: True True

    # What is kept: the weight needs a gradient, the data does not.
    data, weight = tensor(rng.random((2, 3))), b
    node = (data @ weight).grad_fn
    print("kept:", [value is not None for value in node.saved])  # -> kept: [True, False]

    x, w = (tensor(rng.random((200, 200), dtype=np.float32)) for _ in range(2))
    product = min(timeit.repeat(lambda: x @ w, number=1, repeat=20))
    as_sum = min(timeit.repeat(lambda: (x.unsqueeze(-1) * w).sum(1), number=1, repeat=3))
    print(f"a product takes 1/{as_sum / product:.0f} of the time of the sum")  # -> ...
