"""Step softmax02: The logarithm of a softmax in the package's dress

Step 39a built log_softmax of operations, and said why a loss uses it. As a node of its own it needs
y alone, since softmax is e^y:

    dL/dx_i = g_i - e^(y_i) (sum of g_k)

With a loss of -y_t, for the target t, that is the prediction minus the target (step 40b).

`softmax_along` checks the arguments of both functions.

The trap: softmax(x).log() is the same formula on paper. For small scores it agrees; it fails where
a network is sure and wrong, and that is where its gradient is needed most.

Changed: softmax. New: LogSoftmax, softmax_along, log_softmax.
Try: write softmax(x, 0).log() in the demo's loss. What is its gradient?
"""

from typing import Any

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


class LogSoftmax(Function):
    """y_i = x_i - log(sum of exp(x_k));   dL/dx_i = g_i - exp(y_i) (sum of g_k).

    The logarithm of a softmax would be log(0) = -inf already for x = [0, 200].
    """

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = minus_max(x, dims, ctx.xp)
        y -= ctx.xp.log(ctx.call(Sum, ctx.xp.exp(y), dims, True))
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g - ctx.xp.exp(y) * ctx.call(Sum, g, ctx.dims, True)


def softmax_along(function: type[Function], input: Tensor, dim: int) -> Tensor:
    """Softmax or LogSoftmax along one dimension.

    Raises:
        TypeError: `dim` is not an integer.
        NotImplementedError: `input` is of an integer type.
    """
    ndim = input.array.ndim
    dim = normalize_dim(dim, ndim)
    if not input.is_floating_point():
        raise NotImplementedError(f"softmax() is not implemented for {input.dtype!r}")
    return function.apply(input, (dim,) if ndim else ())


@reduction
def softmax(input: Tensor, dim: int) -> Tensor:
    """exp(input), divided by its sum along `dim`: positive numbers that add up to 1."""
    return softmax_along(Softmax, input, dim)


@reduction
def log_softmax(input: Tensor, dim: int) -> Tensor:
    """log(softmax(input, dim)), accurate also where the softmax underflows to 0."""
    return softmax_along(LogSoftmax, input, dim)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    scores = tensor([1000.0, 999.0, 0.0])
    print("softmax:", softmax(scores, 0).tolist())  # -> softmax: [0.73106, 0.26894, 0.0]
    print("log of it:", softmax(scores, 0).log().tolist())
    # -> log of it: [-0.31326, -1.3133, -inf]
    print("log_softmax:", log_softmax(scores, 0).tolist())
    # -> log_softmax: [-0.31326, -1.3133, -1000.3]

    # The loss -y_t for t = 2, and its gradient: the prediction minus the target.
    x = tensor([1000.0, 999.0, 0.0], requires_grad=True)
    loss = (log_softmax(x, 0) * tensor([0.0, 0.0, -1.0])).sum()
    loss.backward()
    print("loss:", loss.item(), " gradient:", x.grad.tolist())
    # -> loss: 1000.3  gradient: [0.73106, 0.26894, -1.0]

    z = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    print(gradcheck(log_softmax, (z, 1)), gradgradcheck(log_softmax, (z, 1)))  # -> True True
    for function in (softmax, log_softmax):
        try:
            function(tensor([1, 2]), 0)
        except NotImplementedError as error:
            print("NotImplementedError:", error)
            # -> NotImplementedError: softmax() is not implemented for tinytorch.int64
            # -> NotImplementedError: softmax() is not implemented for tinytorch.int64
