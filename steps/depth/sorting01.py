"""Step sorting01: sort and argsort in the package's dress

Step 72e built them: finding an order is not differentiable, and taking the elements in this order
is a gather. Here TakeAlong of step extremes03 does the taking, as each index occurs once. The
result is a named tuple, `values` and `indices`, as in PyTorch.

Where two elements are about to change places, the derivative jumps. The sorted values themselves
are continuous even there, as the maximum is at a tie, so training copes.

The trap: argsort alone teaches a network nothing. A loss made of places ("the right class should be
the first") has no gradient; it is 0 nearly everywhere, and not defined where it is not 0.

Changed: ArgSort, sort. New: SortResult, Sort, argsort.
Try: sort x * x in place of x. Which rule brings the gradient to x?
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import TakeAlong, named, named_result

SortResult = named_result("sort", "values", "indices")
Sort = named(TakeAlong, "SortBackward0")  # the name that the graph shows


class ArgSort(Function):
    """The indices of the elements in rising order along `dim`."""

    differentiable = False

    def forward(ctx, x: Any, dim: int) -> Any:
        return ctx.xp.argsort(x, axis=dim, kind="stable")


@tensor_method("argsort")
def argsort(input: Tensor, dim: int = -1) -> Tensor:
    """The int64 indices that sort `input` along `dim`."""
    return ArgSort.apply(input, normalize_dim(dim, input.array.ndim))


@tensor_method("sort")
def sort(input: Tensor, dim: int = -1) -> SortResult:
    """(values, indices): `input` sorted along `dim`, and where each element came from.

    The gradient of an element goes to where it came from.
    """
    dim = normalize_dim(dim, input.array.ndim)
    indices = ArgSort.apply(input, dim)
    return SortResult(Sort.apply(input, indices, dim), indices)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.ops.slicing import select

    x = tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, indices = sort(x)
    print("sorted:", values.tolist(), "came from", indices.tolist())
    # -> sorted: [1.0, 2.0, 3.0] came from [1, 2, 0]
    print("each gradient goes home:", grad(values, x, tensor([10.0, 20.0, 30.0]))[0].tolist())
    # -> each gradient goes home: [30.0, 10.0, 20.0]
    print("its node:", values.grad_fn.name())  # -> its node: SortBackward0
    print("the order has a gradient:", argsort(x).requires_grad)
    # -> the order has a gradient: False

    table = tensor([[3, 1, 2], [4, 6, 5]])
    print("rows:", table.sort().values.tolist(), "columns:", table.sort(0).indices.tolist())
    # -> rows: [[1, 2, 3], [4, 5, 6]] columns: [[0, 0, 0], [1, 1, 1]]
    z = tensor(np.random.default_rng(0).random((2, 4)), requires_grad=True)
    print(gradcheck(lambda z: sort(z).values, z), gradgradcheck(lambda z: sort(z).values, z))
    # -> True True

    # Continuous, with a jump in the derivative: x_0 passes x_1.
    for first in (0.9, 1.1):
        pair = tensor([first, 1.0], requires_grad=True)
        smallest = select(sort(pair).values, 0, 0)
        print(f"smallest: {smallest.item():.1f} gradient:", grad(smallest, pair)[0].tolist())
    # -> smallest: 0.9 gradient: [1.0, 0.0]
    # -> smallest: 1.0 gradient: [0.0, 1.0]
