"""Step attention03: Attention masks: rows in which nothing is allowed

At the end of step attention01 one word may look at nothing. Its scores are all -inf, their largest
is -inf as well, and -inf - (-inf) is nan; backward spreads it over all gradients. Such rows are
common: in a batch the short sentences are filled up with words that may not be looked at.

So the node gets a mask of booleans as an argument of its own, `allowed`, of ones and zeros. E is
multiplied by it after exp:

    E = exp(scores - top) * allowed,      top: the largest *allowed* score of each row

No -inf takes part. A row without any allowed key has z = 0. Where z is 0 it becomes 1: the row is
0 / 1 = 0, and so are its gradients. A mask of numbers may have rows of -inf too: there top becomes
0.

The trap: a score that is not allowed may be far above top. Its exp would be inf, and inf * 0 is
nan. So the differences are cut off at 1; those of allowed scores are at most 0.

Changed: Attention, scaled_dot_product_attention.
Try: return e, z without `+ (z == 0)`. Then take the clip out.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as grad_of
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.nn.modules.softmax import softmax
from tinytorch.ops.broadcast import broadcast_to
from tinytorch.ops.comparison import logical_not
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.gather import masked_fill
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.reduction import Sum
from tinytorch.ops.slicing import tril

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def plain(x: Any) -> Any:
    """The array of a tensor; what is not a tensor as it is."""
    return x.array if isinstance(x, Tensor) else x


class Attention(Function):
    """Y = P V, where P = softmax(s Q K^T + mask): row i of P is what query i takes of each value.

    Kept are E = exp(s Q K^T + mask - top) and the sums of its rows, z: P = E / z. It is cheaper to
    divide Y and its gradient by z than P, which is larger. With H = dL/dY / z:

        dL/dV = E^T H,   dL/dS = E * (H V^T - the sums of the rows of H * Y),
        dL/dQ = s dL/dS K,   dL/dK = s dL/dS^T Q,   dL/dmask = dL/dS

    A row in which nothing is allowed is 0, and so are its gradients.
    """

    saves = 0, 1, 2, 3, 4, ~0, None, None

    def largest(ctx, scores: Any, allowed: Any) -> Any:
        """The largest allowed score of each row, or 0 where there is none."""
        xp, (scores, allowed) = ctx.device.xp, map(plain, (scores, allowed))
        if allowed is not None:
            scores = xp.where(allowed > 0, scores, -math.inf)
        top = extreme_rows(xp.asarray(scores, order="C"), "max")
        return xp.where(top == -math.inf, xp.zeros_like(top), top)

    def exponentials(ctx, q: Any, k_t: Any, mask: Any, allowed: Any) -> tuple[Any, Any]:
        """E, and z, of arrays or Tensors; k_t is K^T."""
        scores = (q * ctx.scale) @ k_t  # the smaller factor is scaled
        if mask is not None:
            scores = scores + mask
        top = ctx.largest(scores, allowed)
        top = wrap(top, ctx.device) if ctx.xp is Tensor else top
        # A score that is not allowed may be far above the largest that is.
        scores = ctx.xp.clip(scores - top, None, 1.0)
        e = ctx.xp.exp(scores)
        e = e if allowed is None else e * allowed
        z = ctx.call(Sum, e, (e.ndim - 1,), True)
        return e, z + (z == 0)

    def forward(ctx, q: Any, k: Any, v: Any, mask: Any, allowed: Any, scale: float) -> Any:
        ctx.scale = scale
        e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask, allowed)
        y = (e @ v) / z
        ctx.save_for_backward(q, k, v, mask, allowed, y, e, z)
        return y

    def input_gradients(ctx, g: Any, q: Any, k: Any, v_t: Any, y: Any, e: Any, z: Any) -> tuple:
        """dL/dQ, dL/dK, dL/dV and dL/dS, of arrays or Tensors."""
        h = g / z
        gs = h @ v_t
        gs -= (h * y).sum(axis=-1, keepdims=True)
        gs *= e
        gv = e.swapaxes(-1, -2) @ h
        return (gs @ k) * ctx.scale, gs.swapaxes(-1, -2) @ (q * ctx.scale), gv, gs

    def backward(ctx, g: Any) -> Any:
        q, k, v, mask, allowed, y, e, z = ctx.saved
        if ctx.xp is Tensor:  # E and z once more, as functions of Q, K and the mask
            e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask, allowed)
        return ctx.input_gradients(g, q, k, v.swapaxes(-1, -2), y, e, z)

    def name(ctx) -> str:
        return "ScaledDotProductFlashAttentionForCpuBackward0"  # PyTorch's name


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value, with scale = 1 / sqrt(E) by default.

    Args:
        attn_mask: broadcasts to [..., L, S]. Of booleans: True where a query may look. Of floats:
            added to the scores. A query that may look nowhere gets 0.
        is_causal: query i may look at the keys 0 to i.
    """
    dtype, device, shapes = query.dtype, query.device, [x.array.shape for x in (query, key, value)]
    sizes = (*shapes[0][:-1], shapes[1][-2])  # of the scores
    mask = allowed = None
    if is_causal:
        allowed = wrap(device.xp.tri(*sizes[-2:], dtype=query.array.dtype), device)
    elif attn_mask is not None and attn_mask.dtype is bool_:
        allowed = attn_mask.to(dtype)
    elif attn_mask is not None:
        mask = broadcast_to(attn_mask, sizes)
    allowed = None if allowed is None else broadcast_to(allowed, sizes)
    scale = 1 / math.sqrt(shapes[0][-1]) if scale is None else scale
    return Attention.apply(query, key, value, mask, allowed, scale)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    x = randn(4, 8, requires_grad=True)
    y = scaled_dot_product_attention(x, x, x, is_causal=True)
    added = masked_fill(zeros(4, 4), logical_not(tril(ones(4, 4)).bool()), -math.inf)
    print((scaled_dot_product_attention(x, x, x, added) - y).abs().max().item() < 1e-6)  # -> True

    # Word 3 may look at nothing: its result is 0, and breaks nothing.
    allowed = tril(ones(4, 4)).bool()
    allowed[2] = False
    scores = masked_fill(x @ x.mT, logical_not(allowed), -math.inf)
    print("softmax of -inf:", softmax(scores, -1)[2].tolist())
    # -> softmax of -inf: [nan, nan, nan, nan]
    y = scaled_dot_product_attention(x, x, x, allowed)
    y.sum().backward()
    print(y[2].abs().max().item(), x.grad.isnan().any().item())  # -> 0.0 False
    added[2] = -math.inf
    print(scaled_dot_product_attention(x, x, x, added)[2].abs().max().item())  # -> 0.0

    # A later word has a score of 300, which must not count for the words before it.
    key = zeros(4, 8)
    key[3] = 300.0
    y = scaled_dot_product_attention(ones(4, 8), key, x, is_causal=True)
    print((y[0] - x[0]).abs().max().item(), (y[3] - x[3]).abs().max().item())  # -> 0.0 0.0

    # Also on Tensors, for a second derivative.
    y = scaled_dot_product_attention(x, x, x, allowed, scale=0.5)
    (grad,) = grad_of(y.square().sum(), [x], create_graph=True)
    (second,) = grad_of(grad.square().sum(), [x])
    print(second.isnan().any().item())  # -> False
