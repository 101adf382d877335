"""Step softmax03: Logsumexp, a smooth maximum

The part that log_softmax subtracts from every score has a name:

    logsumexp(x) = log(e^(x_1) + ... + e^(x_n)) = m + log(sum of e^(x_i - m))

It lies between max(x) and max(x) + log(n): a maximum without a corner. Its gradient is softmax(x):
where max gives all of it to one element, logsumexp shares it. It also adds probabilities that are
stored as logarithms.

Infinite scores need care. A mask sets a score to -inf, since e^-inf is 0.

- All are -inf: m is -inf, and x - m is -inf + inf, which is nan. So an m that is not finite becomes
  0. Then the sum is 0, and its logarithm -inf: the right result.
- Its backward: softmax is e^(x_i - y), with y = -inf again -inf + inf. With a finite number in
  place of y, x_i - y is -inf, and the gradient 0. That is right, since a masked score has no effect
  on y.
- One is inf: y is inf, as it should be.

Of no elements the sum is 0, and the result -inf. NumPy's max refuses an empty array, so m is then
its sum, 0.

The trap: the finite number must be finite in the type of x. -1e308 is -inf in float32. So `lowest`
has one for each size of type.

`saves = 0, ~0`: x is kept, and the result (step node02).

New: Logsumexp, logsumexp.
Try: leave the clip out of backward. Which gradient becomes nan?
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction


def minus_max(x: Any, dims: tuple[int, ...], xp: Any) -> Any:
    """A new array: x minus its maximum over `dims`, so that exp of it is at most 1."""
    x = xp.asarray(x, order="C")
    if x.size == 0:
        return x.copy()
    return xp.asarray(x - x.max(axis=dims, keepdims=True))


class Logsumexp(Reduction):
    """y = log(exp(x_1) + ... + exp(x_n));   dy/dx_i = exp(x_i - y).

    exp(1000) is inf, so the largest, m, is taken out: y = m + log(sum of exp(x_i - m)).
    """

    saves = 0, ~0
    lowest = {4: -3e38, 8: -1e308}  # by item size: the lowest finite number, nearly

    def forward(ctx, x: Any, dims: Any, keepdims: bool) -> Any:
        ctx.begin(x, dims, keepdims)
        xp = ctx.xp
        m = x.max(axis=dims, keepdims=True) if x.size else x.sum(axis=dims, keepdims=True)
        m = xp.where(xp.isfinite(m), m, xp.zeros_like(m))  # inf - inf would be nan
        total = xp.exp(x - m).sum(axis=dims, keepdims=keepdims)
        y = xp.log(total) + m.reshape(total.shape)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        # Where all x_i are -inf, so is y: with a finite number in its place x_i - y is not nan.
        y = ctx.xp.clip(y, ctx.lowest[y.dtype.itemsize], None)
        return ctx.spread(g) * ctx.xp.exp(x - ctx.spread(y))


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


@reduction
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow."""
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' must be tuple of ints, not NoneType")
    return Logsumexp.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


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

    def gradient(data):
        x = tensor(data, requires_grad=True)
        logsumexp(x, 0).backward()
        return x.grad.tolist()

    print("smooth:", logsumexp(tensor([1000.0, 999.0, 0.0]), 0).item())  # -> smooth: 1000.3
    x = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    logsumexp(x, 1).backward()
    print("its gradient is softmax:", np.allclose(x.grad.numpy(), softmax(x, 1).detach().numpy()))
    # -> its gradient is softmax: True
    print("probabilities, added:", logsumexp(tensor([0.25, 0.5]).log(), 0).exp().item())
    # -> probabilities, added: 0.75

    hidden = -math.inf
    print("one hidden:", logsumexp(tensor([hidden, 2.0]), 0).item(), gradient([hidden, 2.0]))
    # -> one hidden: 2.0 [0.0, 1.0]
    print("all hidden:", logsumexp(tensor([hidden, hidden]), 0).item(), gradient([hidden, hidden]))
    # -> all hidden: -inf [0.0, 0.0]
    print(
        "inf:",
        logsumexp(tensor([math.inf, 2.0]), 0).item(),
        " none:",
        logsumexp(tensor([]), 0).item(),
    )
    # -> inf: inf  none: -inf
    print("kept:", list(logsumexp(x, (0, 1), keepdim=True).shape))  # -> kept: [1, 1]
    try:
        logsumexp(x, None)
    except TypeError as error:
        print("TypeError:", error)
        # -> TypeError: logsumexp(): argument 'dim' must be tuple of ints, not NoneType

    # Its dimension is kept here: without that, the derivative of the derivative has to reshape a
    # tensor, which comes in step shape01.
    print(gradcheck(logsumexp, (x, 1, True)), gradgradcheck(logsumexp, (x, 1, True)))
    # -> True True
