"""Step 72d: gather and scatter_add

A loss wants the probability of the right class: in each row another column. p[arange(n), labels]
says it, with a row number for each element (step 70b). gather leaves these out: all indices are the
element's own, and only the one along `dim` is looked up.

    gather        y[i, j] = x[i, index[i, j]]            dim = 1; the result has index's shape
    scatter_add   y[i, index[i, j]] += x[i, j]           the way back

They are a pair as in step 71. What was read twice gets both gradients, so the way back adds. And
the gradient of scatter_add is gather: each is the other's backward, and derivatives of all orders
are there.

With ones as its source, scatter_add counts.

The trap: torch.scatter, without add, overwrites. Where an index occurs twice, one value is lost,
and which one is not said.

PyTorch: the same functions. Its index may be smaller than x along the other dimensions, too.

New: Gather, ScatterAdd, gather, scatter_add.
Try: write y[tuple(key)] += x in place of np.add.at. Which lines notice?
In depth: gather01 to gather06, nll01 to nll05, embedding01 to embedding08.
"""

import numpy as np

from tinytorch.autograd.backward import grad
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor, tensor_method
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (methods)


class Gather(Function):
    """y = the elements of x at `index` along `dim`; other indices as in the result."""

    def forward(ctx, x, index, dim):
        ctx.dim, ctx.shape = dim, x.shape
        ctx.save_for_backward(index)
        return np.take_along_axis(x, index, dim)

    def backward(ctx, g):
        (index,) = ctx.saved
        return ctx.call(ScatterAdd, g, index, ctx.dim, ctx.shape), None


class ScatterAdd(Function):
    """y = zeros of a shape, to which x is added at `index` along `dim`."""

    def forward(ctx, x, index, dim, shape):
        ctx.dim = dim
        ctx.save_for_backward(index)
        y = np.zeros(shape, x.dtype)
        key = list(np.indices(index.shape))  # each element's own index ...
        key[dim] = index  # ... but along dim
        np.add.at(y, tuple(key), x)
        return y

    def backward(ctx, g):
        (index,) = ctx.saved
        return ctx.call(Gather, g, index, ctx.dim), None


@tensor_method("gather")
def gather(input, dim, index):
    return Gather.apply(input, index, dim)


@tensor_method("scatter_add")
def scatter_add(input, dim, index, src):
    return input + ScatterAdd.apply(src, index, dim, input.shape)


if __name__ == "__main__":
    p = tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], requires_grad=True)
    labels = tensor([[0], [2]])
    right = p.gather(1, labels)
    print("right class:", (right * 10).tolist())  # -> right class: [[7.0], [4.0]]
    print(grad(right.sum(), p)[0].tolist())  # -> [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]

    x = tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    twice = tensor([[2, 2, 0]])
    weights = tensor([[1.0, 10.0, 100.0]])
    print("added back:", grad(x.gather(1, twice), x, weights)[0].tolist())
    # -> added back: [[100.0, 0.0, 11.0]]

    # Five more letters are counted.
    counts, letters = tensor([7.0, 2.0, 4.0]), tensor([2, 0, 0, 2, 0])
    counts = counts.scatter_add(0, letters, tensor([1.0] * 5))
    print("counts:", counts.tolist())  # -> counts: [10.0, 2.0, 6.0]

    z = tensor([[0.3, -1.2, 2.0], [0.5, 0.1, -0.7]], dtype=float64, requires_grad=True)
    index = tensor([[1, 1, 0]])
    for f in (lambda z: (z * z).gather(0, index), lambda z: z.scatter_add(0, index, z[:1] * z[:1])):
        print(gradcheck(f, (z,), raise_exception=False), gradgradcheck(f, (z,)))
        # -> True True
        # -> True True
