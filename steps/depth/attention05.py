"""Step attention05: Dropout of attention weights

Attention can learn to rely on one single word. Dropout (step layers09) on the weights makes it look
elsewhere too: each weight becomes 0 with probability p, the others grow by 1 / (1 - p).

Inside the node it is one more factor, D, of zeros and of 1 / (1 - p):

    Y = (D * P) V,     dL/dP = D * (H V^T),     dL/dV = (D * E)^T H

The sum that the softmax needs in backward is still that of H * Y: sum over k of p_k d_k (h . v_k)
is h . y. So only two lines of backward change.

The trap: the sums z are those before the dropout. If the zeros went in first, the softmax would
make up for them, and the weights that are left would add up to 1 again: less noise, and another
mean.

And unlike the module Dropout, this function cannot know whether a network is in training: p is what
is given. nn.MultiheadAttention (step attention11) gives 0 after eval().

Changed: Attention, scaled_dot_product_attention (dropout_p).
Try: in forward, compute z from e * keep. Which line of the demo changes?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float64
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.broadcast import broadcast_to
from tinytorch.ops.creation import eye, zeros
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import generator_for, manual_seed, randn
from tinytorch.ops.reduction import Sum

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

    saves = 0, 1, 2, 3, 4, None, ~0, None, None
    limit = 60.0  # exp(60) times the length of a row is far from overflow, and exp(-60) is not 0

    def largest(ctx, scores: Any, allowed: Any) -> Any:
        """The largest allowed score of each row, or None where exp is safe without it."""
        xp, (scores, allowed) = ctx.device.xp, map(plain, (scores, allowed))
        if scores.size == 0 or (-ctx.limit < scores.min() and scores.max() < ctx.limit):
            return None
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
        if top is not None:  # a score that is not allowed may be far above it
            top = wrap(top, ctx.device) if ctx.xp is Tensor else top
            scores = ctx.xp.clip(scores - top, None, 1.0)
        e = ctx.xp.exp(scores)
        e = e if allowed is None else e * allowed
        z = ctx.call(Sum, e, (e.ndim - 1,), True)
        return e, z + (z == 0)

    def forward(
        ctx, q: Any, k: Any, v: Any, mask: Any, allowed: Any, p: float, scale: float
    ) -> Any:
        ctx.scale, keep = scale, None
        e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask, allowed)
        if p:
            keep = generator_for(ctx.device, None).source.uniform(e.shape, q.dtype) >= p
            keep = keep.astype(q.dtype)
            keep *= 1 / (1 - p) if p < 1 else 0
        y = ((e if keep is None else e * keep) @ v) / z
        ctx.save_for_backward(q, k, v, mask, allowed, keep, y, e, z)
        return y

    def input_gradients(
        ctx, g: Any, q: Any, k: Any, v_t: Any, y: Any, e: Any, z: Any, keep: Any
    ) -> tuple:
        """dL/dQ, dL/dK, dL/dV and dL/dS, of arrays or Tensors."""
        h = g / z
        gs = h @ v_t
        if keep is not None:
            gs *= keep
        gs -= (h * y).sum(axis=-1, keepdims=True)
        gs *= e
        gv = (e if keep is None else e * keep).swapaxes(-1, -2) @ h
        return (gs @ k) * ctx.scale, gs.swapaxes(-1, -2) @ (q * ctx.scale), gv, gs

    def backward(ctx, g: Any) -> Any:
        q, k, v, mask, allowed, keep, y, e, z = ctx.saved
        if ctx.xp is Tensor:  # E and z once more, as functions of Q, K and the mask
            e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask, allowed)
        return ctx.input_gradients(g, q, k, v.swapaxes(-1, -2), y, e, z, keep)

    def name(ctx) -> str:
        return "ScaledDotProductFlashAttentionForCpuBackward0"  # PyTorch's name


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value, with scale = 1 / sqrt(E) by default.

    Args:
        attn_mask: broadcasts to [..., L, S]. Of booleans: True where a query may look. Of floats:
            added to the scores. A query that may look nowhere gets 0.
        dropout_p: the probability with which a weight becomes 0, also outside of training.
        is_causal: query i may look at the keys 0 to i.
    """
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
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
    return Attention.apply(query, key, value, mask, allowed, dropout_p, scale)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    # Equal scores, and values that show the weights themselves.
    q, k, v = zeros(2000, 8), zeros(4, 8), eye(4)
    print(scaled_dot_product_attention(q, k, v)[0].tolist())  # -> [0.25, 0.25, 0.25, 0.25]
    weights = scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    print(sorted(set(weights.flatten().tolist())))  # -> [0.0, 0.5]
    print("mean", [round(w, 1) for w in weights.mean(0).tolist()])  # -> mean [0.3, 0.2, 0.3, 0.2]
    print("sums of rows", sorted(set(weights.sum(-1).tolist())))
    # -> sums of rows [0.0, 0.5, 1.0, 1.5, 2.0]

    # The gradient uses the same zeros: y is linear in v, so y.sum() = the sum of v * dy.sum()/dv.
    v = randn(4, 3, requires_grad=True)
    y = scaled_dot_product_attention(randn(5, 8), randn(4, 8), v, dropout_p=0.5)
    y.sum().backward()
    print(abs(((v * v.grad).sum() - y.sum()).item()) < 1e-5)  # -> True

    # And the gradient of the queries is the slope that a small change measures, with the same draw.
    q, k = randn(5, 8, dtype=float64, requires_grad=True), randn(20, 8, dtype=float64)
    v = randn(20, 3, dtype=float64)

    def loss(q):
        manual_seed(3)
        return scaled_dot_product_attention(q, k, v, dropout_p=0.5).square().sum()

    loss(q).backward()
    step = zeros(5, 8, dtype=float64)
    step[1, 2] = 1e-6
    slope = (loss(q + step) - loss(q - step)).item() / 2e-6
    print(abs(slope / q.grad[1, 2].item() - 1) < 1e-4)  # -> True

    for p in (1.0, 1.5):
        try:
            print(scaled_dot_product_attention(q, k, v, dropout_p=p).abs().max().item())  # -> 0.0
        except RuntimeError as error:
            print(error)  # -> dropout probability has to be between 0 and 1, but got 1.5
