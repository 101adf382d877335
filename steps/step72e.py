"""Step 72e: Maximum and sorting: find, then gather

Which number is the largest, and where is it? Numbers in order, and where was each of them before?
Both questions have two answers: indices, and the elements at these indices.

    indices = argmax(x)  or  argsort(x)       integers, no gradient
    values  = gather(x, dim, indices)         gradient: back to where they came from

Finding an index is not differentiable: a small change of x leaves it as it is. But once it is
found, the rest is gather, whose gradient stands in step 72d. So two operations need no backward of
their own.

The traps. At a tie, max(dim) gives all of the gradient to the one it has chosen, while amax (step
38d) shares it. And an order alone teaches a network nothing: a loss made of indices, such as "the
right class should come first", has no gradient.

PyTorch: both return a named tuple, values and indices. topk is a sort that stops after k.

New: ArgMax, ArgSort, max, sort. The finished gather is imported. `max` hides Python's own.
Try: leave out differentiable = False in ArgSort. What does x.sort().indices.requires_grad say, and
what did it say before?

In depth: extremes01 to extremes09, sorting01 to sorting08, derived01 to derived07.
"""

from collections import namedtuple

from tinytorch.autograd.backward import grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import tensor, tensor_method
from tinytorch.ops import arithmetic, minmax, reduction, shape  # noqa: F401  (methods)
from tinytorch.ops.gather import gather

Pair = namedtuple("Pair", "values indices")


class ArgMax(Function):
    """The index of the first largest element along `dim`, which keeps the size 1."""

    differentiable = False

    def forward(ctx, x, dim):
        return x.argmax(axis=dim, keepdims=True)


class ArgSort(Function):
    """The indices that bring the elements along `dim` into rising order."""

    differentiable = False

    def forward(ctx, x, dim):
        return x.argsort(axis=dim, kind="stable")


@tensor_method("max")
def max(input, dim, keepdim=False):
    """(values, indices) of the largest elements along dim."""
    indices = ArgMax.apply(input, dim)
    pair = gather(input, dim, indices), indices
    return Pair(*(pair if keepdim else [each.squeeze(dim) for each in pair]))


@tensor_method("sort")
def sort(input, dim=-1):
    """(values, indices): the elements in rising order, and where they came from."""
    indices = ArgSort.apply(input, dim)
    return Pair(gather(input, dim, indices), indices)


if __name__ == "__main__":
    x = tensor([[3.0, 9.0, 4.0], [8.0, 1.0, 8.0]], requires_grad=True)
    values, indices = x.max(1)
    print(values.tolist(), "at", indices.tolist())  # -> [9.0, 8.0] at [1, 0]
    print("max: ", grad(values.sum(), x)[0].tolist())
    # -> max:  [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    print("amax:", grad(x.amax(1).sum(), x)[0].tolist())
    # -> amax: [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]

    x = tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, indices = x.sort()
    print("sorted:", values.tolist(), "from", indices.tolist())
    # -> sorted: [1.0, 2.0, 3.0] from [1, 2, 0]
    print("home:", grad(values, x, tensor([10.0, 20.0, 30.0]))[0].tolist())
    # -> home: [30.0, 10.0, 20.0]
    print(indices.requires_grad, values.requires_grad)  # -> False True
