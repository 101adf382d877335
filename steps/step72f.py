"""Step 72f: einsum, products with letters

Attention multiplies queries [batch, head, q, d] by keys [batch, head, k, d]. With `@` one has to
transpose the keys first; with the heads elsewhere, both. Letters say it at once:

    "bhqd,bhkd->bhqk"      y_bhqk = sum over d of x_bhqd * z_bhkd

A letter is an index. All operands that have it run through it together, and what the result does
not name is summed over. "ij,jk->ik" is a matrix product, "ij->ji" a transpose, "ij->" the sum,
"i,j->ij" a table of products.

So forward gives each operand a dimension for each letter, of size 1 where it lacks one. Then
broadcasting multiplies, and one sum is left.

And the gradient is one more einsum. g has the letters of the result and takes its operand's place
among the factors, and the operand's letters become the result:

    y = einsum("ij,jk->ik", A, B)      dL/dA = einsum("ik,jk->ij", G, B)      = G B^T
                                       dL/dB = einsum("ik,ij->jk", G, A)      = A^T G

A letter that no other factor has, as i in "ij->j", is repeated: a factor of ones brings it in.

The trap: the product of all letters is held in memory, i * j * k numbers for a matrix product. The
package sorts the letters of a pair into kinds and leaves the work to one product of matrices.

PyTorch: torch.einsum, in the same way. It also takes "ii", a diagonal.

New: Einsum, aligned, einsum.
Try: leave out the factor of ones and its names[k]. Which line of the demo notices, and which does
not?

In depth: matmul01 to matmul07, einsum01 to einsum06, attention01 to attention19,
transformer01 to transformer07, gpt01 to gpt04.
"""

import functools

import numpy as np

from tinytorch.autograd.backward import grad
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.ops import arithmetic, matmul, minmax, reduction  # noqa: F401  (methods)
from tinytorch.ops.random import manual_seed, randn


class Einsum(Function):
    """y = the product of the operands, element by element, summed over what y does not name."""

    def forward(ctx, *args):
        *arrays, equation = args
        ctx.save_for_backward(*arrays)
        ctx.equation = equation
        inputs, output = equation.split("->")
        summed = sorted(set(inputs) - {*output, ","})
        product = 1.0
        for x, names in zip(arrays, inputs.split(","), strict=True):
            product = product * aligned(x, names, [*output, *summed])
        return product.sum(axis=tuple(range(len(output), product.ndim)))

    def backward(ctx, g):
        inputs, output = ctx.equation.split("->")
        names, grads = inputs.split(","), []
        for k, x in enumerate(ctx.saved):
            # ones: a letter that only this operand has is repeated
            others = [*ctx.saved[:k], *ctx.saved[k + 1 :], np.ones(x.shape, bool)]
            left = ",".join([output, *names[:k], *names[k + 1 :], names[k]])
            grads.append(ctx.call(Einsum, g, *others, f"{left}->{names[k]}"))
        return tuple(grads)


def aligned(x, names, letters):
    """x with a dimension for each of the letters, of size 1 where it has none of this name."""
    x = x.transpose([names.index(letter) for letter in letters if letter in names])
    return np.expand_dims(x, [i for i, letter in enumerate(letters) if letter not in names])


def einsum(equation, *operands):
    """The sum of products that the equation writes, as in "ij,jk->ik"."""
    return Einsum.apply(*operands, equation)


if __name__ == "__main__":
    a = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    print("product:", einsum("ij,jk->ik", a, b).tolist(), (a @ b).tolist())
    # -> product: [[5.0, 11.0], [14.0, 23.0]] [[5.0, 11.0], [14.0, 23.0]]
    print("columns:", einsum("ij->j", a).tolist(), "all:", einsum("ij->", a).item())
    # -> columns: [5.0, 7.0, 9.0] all: 21.0
    a.requires_grad_()
    print("repeated:", grad(einsum("ij->j", a).sum(), a)[0].tolist())
    # -> repeated: [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    manual_seed(0)
    shapes = {
        "bhqd,bhkd->bhqk": [(1, 2, 3, 2), (1, 2, 2, 2)],
        "i,ij,j->": [(2,), (2, 3), (3,)],
    }
    for equation, sizes in shapes.items():
        operands = [randn(*size).to(float64).requires_grad_() for size in sizes]
        f = functools.partial(einsum, equation)
        print(equation, gradcheck(f, operands, raise_exception=False), gradgradcheck(f, operands))
        # -> bhqd,bhkd->bhqk True True
        # -> i,ij,j-> True True
