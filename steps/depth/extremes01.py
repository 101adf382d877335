"""Step extremes01: Maximum and minimum in the package's dress

Step 38d built amax: the gradient goes to the largest element, and k equal ones get 1/k each. Here
it is a Reduction (step reduce01), for any dimensions, types and devices. Amin differs from Amax in
one word: method = "min".

Backward finds the places by a comparison: x == y, with y spread back into a shape that fits x. So x
and y are kept, and no index.

(found.sum takes axis and keepdims, NumPy's words, as the formula runs on arrays and on Tensors. The
dtype keeps the count of float32 gradients in float32.)

The trap is a tie. A gradient of 1 for each of k would count the maximum k times. (Step extremes04's
max, along a dimension, will choose one of them.)

`saves = 0, ~0` declares what is kept: argument 0, and the result (step node02).

Changed: Amax, amax. New: Amin, amin.
Try: return ctx.spread(g) * found, without dividing. Which line is wrong now?
"""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.reduction import Reduction, reduced_dims, reduction


class Amax(Reduction):
    """y = the largest x_i;   dy/dx_i = 1 where x_i = y, divided by the number of such x_i."""

    saves = 0, ~0
    method = "max"

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        ctx.begin(x, dims, keepdims)
        y = getattr(x, ctx.method)(axis=dims, keepdims=keepdims)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        found = x == ctx.spread(y)
        return ctx.spread(g) * found / found.sum(axis=ctx.dims, keepdims=True, dtype=g.dtype)


class Amin(Amax):
    """y = the smallest x_i; the gradient as that of Amax."""

    method = "min"


@reduction
def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest elements over `dim`. Equal ones share the gradient. Errors for empty input."""
    return Amax.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


@reduction
def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest elements over `dim`. Equal ones share the gradient. Errors for empty input."""
    return Amin.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def gradient(function, data):
        x = tensor(data, requires_grad=True)
        function(x).sum().backward()
        return x.grad.tolist()

    x = tensor([[3.0, 9.0, 4.0], [8.0, 1.0, 8.0]])
    print("of all:", amax(x).item(), amin(x).item(), " of rows:", amax(x, 1).tolist())
    # -> of all: 9.0 1.0  of rows: [9.0, 8.0]
    print("of columns, kept:", amin(x, 0, keepdim=True).tolist())
    # -> of columns, kept: [[3.0, 1.0, 4.0]]

    print("the largest gets it:", gradient(amax, [3.0, 9.0, 4.0]))
    # -> the largest gets it: [0.0, 1.0, 0.0]
    print("a tie shares:", gradient(amax, [8.0, 1.0, 8.0]), gradient(amin, [2.0, 2.0, 2.0]))
    # -> a tie shares: [0.5, 0.0, 0.5] [0.33333, 0.33333, 0.33333]
    print("row by row:", gradient(lambda x: amax(x, 1), [[3.0, 9.0], [8.0, 8.0]]))
    # -> row by row: [[0.0, 1.0], [0.5, 0.5]]

    z = tensor([[0.3, -1.2, 2.0], [0.1, 0.7, -0.4]], dtype=float64, requires_grad=True)
    for function in (amin, lambda z: amax(z * z, 1, True)):
        print(gradcheck(function, (z,)), gradgradcheck(function, (z,)))
        # -> True True
        # -> True True
