"""Step attention06: Attention in blocks that fit the cache

The scores of 12 texts of 128 words with 4 heads are 3 MB. They are made by a product, then read and
written by min, max, exp, a factor, a sum and another product: each time 3 MB go from the memory to
the processor and back, because its cache, 1 MB or so, has long forgotten them.

The texts of a batch do not depend on each other. So take as many of them as make 512 KB of scores,
do everything with these, and go on. The results are the same, and the arrays stay in the cache:

    for each block b:   E_b, z_b = ...(Q_b, K_b);   Y_b = E_b V_b / z_b

Backward does so too. FlashAttention goes further, with blocks of keys (step attention18).

A product of small matrices also runs faster if its second matrix lies in memory row by row. K^T
does not, and so it is copied first. That costs little: it is smaller than the scores.

The trap: blocks that are too small. Each costs a dozen calls of NumPy, a microsecond or more each.

All dimensions in front are brought to one shape before, so that the first one can be cut.

Changed: Attention. New: part, in_order.
Try: 1 << 24 in place of 1 << 19 in the line with times. One block holds all, and the gain is gone.
"""

import copy
import importlib
import math
import timeit
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as grad_of
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_to
from tinytorch.ops.creation import ones
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import generator_for, manual_seed, randn
from tinytorch.ops.reduction import Sum
from tinytorch.ops.slicing import tril

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def plain(x: Any) -> Any:
    """The array of a tensor; what is not a tensor as it is."""
    return x.array if isinstance(x, Tensor) else x


def part(x: Any, key: tuple) -> Any:
    """x[key], or None where there is no x."""
    return None if x is None else x[key]


def in_order(x: Any, xp: Any) -> Any:
    """x with its elements in order, a copy where need be: small products take half the time."""
    return xp.asarray(x, order="C")


class Attention(Function):
    """Y = P V, where P = softmax(s Q K^T + mask): row i of P is what query i takes of each value.

    Kept are E = exp(s Q K^T + mask - top) and the sums of its rows, z: P = E / z. It is cheaper to
    divide Y and its gradient by z than P, which is larger. With H = dL/dY / z:

        dL/dV = E^T H,   dL/dS = E * (H V^T - the sums of the rows of H * Y),
        dL/dQ = s dL/dS K,   dL/dK = s dL/dS^T Q,   dL/dmask = dL/dS

    A row in which nothing is allowed is 0, and so are its gradients. Arrays are computed in blocks
    of E that fit the cache.
    """

    saves = 0, 1, 2, 3, 4, None, ~0, None
    limit = 60.0  # exp(60) times the length of a row is far from overflow, and exp(-60) is not 0
    chunk = 1 << 19  # bytes of E in one block

    def blocks(ctx, e_shape: tuple[int, ...], itemsize: int) -> list[slice]:
        """The parts of the first dimension of E that have at most `chunk` bytes, or one element."""
        step = max(1, ctx.chunk // max(1, math.prod(e_shape[1:]) * itemsize))
        return [slice(first, first + step) for first in range(0, e_shape[0], step)]

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
        ctx.scale, xp, keep = scale, ctx.xp, None
        shape = (*q.shape[:-1], k.shape[-2])
        if p:
            keep = generator_for(ctx.device, None).source.uniform(shape, q.dtype) >= p
            keep = keep.astype(q.dtype)
            keep *= 1 / (1 - p) if p < 1 else 0
        y = xp.empty_like(q, shape=(*q.shape[:-1], v.shape[-1]))
        k_t, v_rows, kept = in_order(k.swapaxes(-1, -2), xp), in_order(v, xp), []
        for b in ctx.blocks(shape, q.dtype.itemsize):
            e, z = ctx.exponentials(q[b], k_t[b], part(mask, b), part(allowed, b))
            y[b] = ((e if keep is None else e * keep[b]) @ v_rows[b]) / z
            kept.append((b, e, z))
        ctx.save_for_backward(q, k, v, mask, allowed, keep, y, kept)
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
        q, k, v, mask, allowed, keep, y, kept = ctx.saved
        if ctx.xp is Tensor:  # E and z once more, as functions of Q, K and the mask
            e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask, allowed)
            return ctx.input_gradients(g, q, k, v.swapaxes(-1, -2), y, e, z, keep)
        gq, gk, gv = map(ctx.xp.zeros_like, (q, k, v))
        # Argument 3 is the mask. Its gradient is large, and seldom needed.
        gs = None if ctx.edges[3] is None else ctx.xp.zeros_like(mask)
        g, q, k, v_t, y = (in_order(x, ctx.xp) for x in (g, q, k, v.swapaxes(-1, -2), y))
        for b, e, z in kept:
            parts = ctx.input_gradients(g[b], q[b], k[b], v_t[b], y[b], e, z, part(keep, b))
            gq[b], gk[b], gv[b] = parts[:3]
            if gs is not None:
                gs[b] = parts[3]
        return gq, gk, gv, gs

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
    # The dimensions in front. The blocks cut the first of them, so there has to be one.
    lead = broadcast_shapes(*(shape[:-2] for shape in shapes)) or (1,)
    sizes = (*lead, shapes[0][-2], shapes[1][-2])  # of the scores
    q, k, v = (broadcast_to(x, (*lead, *x.array.shape[-2:])) for x in (query, key, value))
    mask = allowed = None
    if is_causal:
        allowed = wrap(device.xp.tri(*sizes[-2:], dtype=query.array.dtype), device)
    elif attn_mask is not None and attn_mask.dtype is bool_:
        allowed = attn_mask.to(dtype)
    elif attn_mask is not None:
        mask = broadcast_to(attn_mask, sizes)
    allowed = None if allowed is None else broadcast_to(allowed, sizes)
    scale = 1 / math.sqrt(shapes[0][-1]) if scale is None else scale
    out = Attention.apply(q, k, v, mask, allowed, dropout_p, scale)
    return out if max(map(len, shapes)) > 2 else out.squeeze(0)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    inputs = [randn(48, 8, 96, 32, requires_grad=True) for _ in range(3)]
    ones_like_y = ones(48, 8, 96, 32)

    def gradients(chunk):
        Attention.chunk = chunk
        y = scaled_dot_product_attention(*inputs)
        return y, grad_of(y, inputs, ones_like_y)

    def seconds(function):
        return min(timeit.repeat(function, number=1, repeat=5))

    # The same numbers, in blocks or all at once.
    (y, grads), (expected, others) = gradients(1 << 19), gradients(1 << 40)
    pairs = zip((y, *grads), (expected, *others), strict=True)
    print("same:", max((a - b).abs().max().item() for a, b in pairs) < 1e-5)  # -> same: True
    Attention.chunk = 1 << 19
    blocks = y.grad_fn.blocks((48, 8, 96, 96), 4)
    print(
        len(blocks), "blocks, the first:", blocks[0]
    )  # -> 48 blocks, the first: slice(0, 1, None)
    times = [seconds(lambda chunk=chunk: gradients(chunk)) for chunk in (1 << 19, 1 << 40)]
    print(f"blocks take {times[0] / times[1]:.2f} of the time")  # -> ...

    # A product with a transposed view, and with a copy in order.
    a, b = inputs[0].detach().array, inputs[1].detach().array.swapaxes(-1, -2)
    copy = in_order(b, inputs[0].device.xp)
    times = seconds(lambda: a @ copy), seconds(lambda: a @ b)
    print(f"a product in order takes {times[0] / times[1]:.2f} of the time")  # -> ...

    # Dimensions in front are broadcast, masks too, and each gets its gradient.
    q, k = randn(2, 5, 8), randn(3, 2, 4, 8)
    mask = randn(5, 4, requires_grad=True)
    y = scaled_dot_product_attention(q, k, k, mask)
    y.square().sum().backward()
    print(y.shape, mask.grad.shape)  # -> tinytorch.Size([3, 2, 5, 8]) tinytorch.Size([5, 4])
    y = scaled_dot_product_attention(q, k, k, tril(ones(5, 4)).bool(), dropout_p=0.1)
    print(y.shape, scaled_dot_product_attention(q[0], k[0, 0], k[0, 0]).shape)
    # -> tinytorch.Size([3, 2, 5, 8]) tinytorch.Size([5, 8])

    # A second derivative is computed on Tensors, all at once.
    q.requires_grad_()
    y = scaled_dot_product_attention(q, k, k)
    (first,) = grad_of(y.square().sum(), [q], create_graph=True)
    (second,) = grad_of(first.square().sum(), [q])
    print(first.shape, second.shape)  # -> tinytorch.Size([2, 5, 8]) tinytorch.Size([2, 5, 8])
