"""Step attention07: Causal attention leaves out blocks

With is_causal, all scores above the diagonal are computed, put through exp, and multiplied by 0.
That is half of them. To leave out single numbers would cost more than to compute them. But blocks
can be left out: cut the queries into blocks of 64 rows, and give each only the keys that one of its
rows may see.

    keys        0-63  64-127  128-191
    queries 0-63    x                          x: computed; the diagonal
    64-127          x     x                    blocks are still masked
    128-191         x     x       x

Of n x n blocks (n + 1) / 2n are left: 3/4 for 128 words, 5/8 for 256, near 1/2 for long texts.

A key is seen by several blocks of queries now, and the gradients of K and V are sums over them: so
`gk[in_k] += ...`. Queries are in one block only.

The trap: arrays filled by += must begin as zeros, and `=` would keep the last block only.

Changed: Attention (blocks, forward, backward), scaled_dot_product_attention.
Try: write gk[in_k] = parts[1]. Which line of the demo breaks, and why not with 64 words?
"""

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
    of E that fit the cache; in causal attention the blocks above the diagonal are left out.
    """

    saves = 0, 1, 2, 3, 4, None, ~0, None
    limit = 60.0  # exp(60) times the length of a row is far from overflow, and exp(-60) is not 0
    chunk = 1 << 19  # bytes of E in one block
    causal_rows = 64  # rows of E in one block of causal attention

    def blocks(ctx, e_shape: tuple[int, ...], itemsize: int) -> list[tuple]:
        """Indices of each block in E, in Q and Y, in K and V, and in the transposes of K and V."""
        n, m = e_shape[-2:]
        step = max(1, ctx.chunk // max(1, math.prod(e_shape[1:]) * itemsize))
        rows, blocks, every = ctx.causal_rows if ctx.causal else max(n, 1), [], slice(None)
        for start in range(0, n, rows):
            # A causal block of queries sees no keys beyond its own last row.
            i, j = slice(start, start + rows), slice(start + rows if ctx.causal else m)
            for first in range(0, e_shape[0], step):
                b = slice(first, first + step), ...
                blocks.append(((*b, i, j), (*b, i, every), (*b, j, every), (*b, every, j)))
        return blocks

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
        ctx, q: Any, k: Any, v: Any, mask: Any, allowed: Any, causal: bool, p: float, scale: float
    ) -> Any:
        ctx.causal, ctx.scale, xp, keep = causal, scale, ctx.xp, None
        shape = (*q.shape[:-1], k.shape[-2])
        if p:
            keep = generator_for(ctx.device, None).source.uniform(shape, q.dtype) >= p
            keep = keep.astype(q.dtype)
            keep *= 1 / (1 - p) if p < 1 else 0
        y = xp.empty_like(q, shape=(*q.shape[:-1], v.shape[-1]))
        k_t, v_rows, kept = in_order(k.swapaxes(-1, -2), xp), in_order(v, xp), []
        for block in ctx.blocks(shape, q.dtype.itemsize):
            in_e, in_q, in_k, in_k_t = block
            e, z = ctx.exponentials(q[in_q], k_t[in_k_t], part(mask, in_e), part(allowed, in_e))
            y[in_q] = ((e if keep is None else e * keep[in_e]) @ v_rows[in_k]) / z
            kept.append((*block, e, z))
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
        for in_e, in_q, in_k, in_k_t, e, z in kept:
            parts = ctx.input_gradients(
                g[in_q], q[in_q], k[in_k], v_t[in_k_t], y[in_q], e, z, part(keep, in_e)
            )
            gq[in_q] = parts[0]
            gk[in_k] += parts[1]
            gv[in_k] += parts[2]
            if gs is not None:
                gs[in_e] = parts[3]
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
    out = Attention.apply(q, k, v, mask, allowed, is_causal, dropout_p, scale)
    return out if max(map(len, shapes)) > 2 else out.squeeze(0)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    inputs = [randn(4, 4, 256, 16, requires_grad=True) for _ in range(3)]
    allowed = tril(ones(256, 256)).bool()

    def gradients(**how):
        y = scaled_dot_product_attention(*inputs, **how)
        return y, grad_of(y, inputs, ones(4, 4, 256, 16))

    # The same as with a mask.
    (y, grads), (expected, others) = gradients(is_causal=True), gradients(attn_mask=allowed)
    pairs = zip((y, *grads), (expected, *others), strict=True)
    print("same:", max((a - b).abs().max().item() for a, b in pairs) < 1e-5)  # -> same: True

    blocks = scaled_dot_product_attention(*inputs, is_causal=True).grad_fn.saved[-1]
    print("keys of the blocks of rows:", sorted({e.shape[-1] for *_, e, z in blocks}))
    # -> keys of the blocks of rows: [64, 128, 192, 256]
    print(
        "computed:", sum(e.size for *_, e, z in blocks) / (4 * 4 * 256 * 256)
    )  # -> computed: 0.625

    times = [
        min(timeit.repeat(lambda how=how: gradients(**how), number=1, repeat=7))
        for how in ({"is_causal": True}, {"attn_mask": allowed})
    ]
    print(f"causal blocks take {times[0] / times[1]:.2f} of the time of the mask")  # -> ...

    # A mask of floats, with its gradient, and dropout go through the same blocks.
    mask = randn(256, 256, requires_grad=True)
    scaled_dot_product_attention(*inputs, mask).sum().backward()
    print(mask.grad.shape, gradients(is_causal=True, dropout_p=0.5)[0].shape)
    # -> tinytorch.Size([256, 256]) tinytorch.Size([4, 4, 256, 16])
