"""Step softmax01: Softmax in the package's dress

Step 39a takes the maximum off, and step 60b has softmax as one node: dL/dx = y (g - sum of g y).
Here it gets the package's form: `minus_max` computes x - m on any device, and works for every
dimension.

It keeps y alone. (Composed of exp, sum and / it would keep three arrays.)

The trap: if all scores are -inf (all classes are masked out), softmax gives nan, in PyTorch too.

`saves = (~0,)` declares that the result is what is kept (step node02).

Changed: Softmax, softmax. New: minus_max.
Try: return x.copy() from minus_max, and see what [1000, 999, 0] becomes.
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Sum, reduction


def minus_max(x: Any, dims: tuple[int, ...], xp: Any) -> Any:
    """A new array: x minus its maximum over `dims`, so that exp of it is at most 1."""
    x = xp.asarray(x, order="C")
    if x.size == 0:
        return x.copy()
    return xp.asarray(x - x.max(axis=dims, keepdims=True))


class Softmax(Function):
    """y_i = exp(x_i) / (sum of exp(x_k));   dL/dx_i = y_i (g_i - sum of g_k y_k)."""

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = ctx.xp.exp(minus_max(x, dims, ctx.xp))
        y /= ctx.call(Sum, y, dims, True)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        gy = g * y
        return gy - y * ctx.call(Sum, gy, ctx.dims, True)


@reduction
def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(input), divided by its sum along `dim`: positive numbers that add up to 1.

    Raises:
        NotImplementedError: `input` is of an integer type.
    """
    ndim = input.array.ndim
    dim = normalize_dim(dim, ndim)
    if not input.is_floating_point():
        raise NotImplementedError(f"softmax() is not implemented for {input.dtype!r}")
    return Softmax.apply(input, (dim,) if ndim else ())


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    scores = tensor([1000.0, 999.0, 0.0])
    e = np.exp(scores.numpy())
    print("e^88, e^89:", np.exp(np.array([88, 89], np.float32)))
    # -> e^88, e^89: [1.6516e+38           inf]
    print("as it is written:", e / e.sum())  # -> as it is written: [nan nan  0.]
    print("softmax:", softmax(scores, 0).tolist())  # -> softmax: [0.73106, 0.26894, 0.0]
    x = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    both = [softmax(y.detach(), 1).numpy() for y in (x, x + 7.0)]
    print("adding 7 changes nothing:", np.allclose(*both))  # -> adding 7 changes nothing: True
    print("columns:", softmax(tensor([[0.0, 0.0], [0.0, math.log(3)]]), 0).tolist())
    # -> columns: [[0.5, 0.25], [0.5, 0.75]]

    print(gradcheck(softmax, (x, 1)), gradgradcheck(softmax, (x, 1)))  # -> True True
    hidden = tensor([-math.inf, -math.inf])
    print("all masked out:", softmax(hidden, 0).tolist())  # -> all masked out: [nan, nan]
    print("empty:", softmax(tensor([[], []]), 1).tolist(), " 0-d:", softmax(tensor(3.0), 0).item())
    # -> empty: [[], []]  0-d: 1.0
    try:
        softmax(tensor([1, 2]), 0)
    except NotImplementedError as error:
        print("NotImplementedError:", error)
        # -> NotImplementedError: softmax() is not implemented for tinytorch.int64
