"""Step attention08: Attention: half precision and refusals

float16 has 11 bits, and ends at 65504. A sum of 64 products, exp, a sum over all keys and another
product, each rounded to 11 bits, add up their errors, and exp of a score of 12 (162755) is inf
already. So halves are computed as float32 and rounded once, as sums are (step reduce04). The same
cast carries the gradients back.

The rest of this step is refusals. Most of these mistakes would otherwise give a result:

- a mask of integers: 0 and 1 would be added to the scores;
- float32 queries with float64 keys: PyTorch does not promote in a product, and neither do we;
- is_causal together with a mask: which one counts?
- a single vector as query: it has to be a matrix with one row.

The trap: a mask may be float32 with float16 inputs, as in PyTorch. Masks are often made before the
network is turned into halves.

Changed: scaled_dot_product_attention.
Try: leave the cast of q, k and v out. What do halves give then?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float32
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_to
from tinytorch.ops.conversion import cast
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.matmul import check_operands
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import generator_for, manual_seed, randn
from tinytorch.ops.reduction import Sum

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
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """softmax(query @ key^T * scale + mask) @ value, with scale = 1 / sqrt(E) by default.

    Args:
        query, key, value: [..., L, E], [..., S, E] and [..., S, V]; the result is [..., L, V].
        attn_mask: broadcasts to [..., L, S]. Of booleans: True where a query may look. Of floats:
            added to the scores. A query that may look nowhere gets 0.
        dropout_p: the probability with which a weight becomes 0, also outside of training.
        is_causal: query i may look at the keys 0 to i.
    Raises:
        RuntimeError: types or shapes do not fit, or is_causal comes with a mask.
    """
    check_operands("scaled_dot_product_attention", query, key, value)
    dtype, device, shapes = query.dtype, query.device, [x.array.shape for x in (query, key, value)]
    if not dtype.is_floating_point or min(map(len, shapes)) < 2:
        raise RuntimeError(
            f"expected query, key and value of a float type and at least 2 dimensions, but got "
            f"{dtype} and the shapes {', '.join(str(list(shape)) for shape in shapes)}"
        )
    if shapes[1][-2] != shapes[2][-2]:
        raise RuntimeError(f"{shapes[1][-2]} keys do not have {shapes[2][-2]} values")
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if is_causal and attn_mask is not None:
        raise RuntimeError("attn_mask must be None with is_causal=True")
    # float16 and bfloat16 are computed as float32 and rounded once.
    computed = opmath_type(dtype)
    # The dimensions in front. The blocks cut the first of them, so there has to be one.
    lead = broadcast_shapes(*(x.array.shape[:-2] for x in (query, key, value))) or (1,)
    sizes = (*lead, shapes[0][-2], shapes[1][-2])  # of the scores
    q, k, v = (
        broadcast_to(cast(x, computed), (*lead, *x.array.shape[-2:])) for x in (query, key, value)
    )
    mask = allowed = None
    if is_causal:
        allowed = wrap(device.xp.tri(*sizes[-2:], dtype=q.array.dtype), device)
    elif attn_mask is not None and attn_mask.dtype is bool_:
        allowed = attn_mask.to(computed)
    elif attn_mask is not None:
        if attn_mask.dtype not in (dtype, float32):
            raise RuntimeError(f"expected a mask of bool or {dtype}, but got {attn_mask.dtype}")
        mask = broadcast_to(cast(attn_mask, computed), sizes)
    allowed = None if allowed is None else broadcast_to(allowed, sizes)
    scale = 1 / math.sqrt(shapes[0][-1]) if scale is None else scale
    out = Attention.apply(q, k, v, mask, allowed, is_causal, dropout_p, scale)
    return cast(out if max(map(len, shapes)) > 2 else out.squeeze(0), dtype)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    exact = [randn(2, 20, 64).half() for _ in range(3)]
    y = scaled_dot_product_attention(*exact)
    expected = scaled_dot_product_attention(*(x.float() for x in exact))
    print(y.dtype, "rounded once:", (y == expected.half()).all().item())
    # -> tinytorch.float16 rounded once: True

    # Scores of 40: exp of them is far above 65504.
    q, k, v = (tensor([[x]]).half() for x in (8.0, 5.0, 1.0))
    large = scaled_dot_product_attention(q, k, v)
    print(large.tolist())  # -> [[1.0]]

    # Masks of halves, of floats, of booleans; causal ones.
    q, k, v = exact
    mask = randn(20, 20)
    print((scaled_dot_product_attention(q, k, v, mask).float()).isnan().any().item())  # -> False
    for each in (mask.half(), mask > 0):
        print(scaled_dot_product_attention(q, k, v, each).dtype)
    # -> tinytorch.float16
    # -> tinytorch.float16
    print(scaled_dot_product_attention(q, k, v, is_causal=True).shape)
    # -> tinytorch.Size([2, 20, 64])

    def refused(*args, **kwargs):
        try:
            scaled_dot_product_attention(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            print(f"{type(error).__name__}: {str(error)[:76]}")

    refused(q[0, 0], k, v)
    # -> RuntimeError: expected query, key and value of a float type and at least 2 dimensions, but
    refused(q.long(), k.long(), v.long())
    # -> RuntimeError: expected query, key and value of a float type and at least 2 dimensions, but
    refused(q.float(), k.double(), v.double())
    # -> RuntimeError: expected m1 and m2 to have the same dtype, but got: float != double != doubl
    refused(q, k[:, :19], v)
    # -> RuntimeError: 19 keys do not have 20 values
    refused(q, k, v, dropout_p=-1)
    # -> RuntimeError: dropout probability has to be between 0 and 1, but got -1
    refused(q, k, v, mask, is_causal=True)
    # -> RuntimeError: attn_mask must be None with is_causal=True
    refused(q, k, v, mask.long())
    # -> RuntimeError: expected a mask of bool or tinytorch.float16, but got tinytorch.int64
    refused([1.0], k, v)
    # -> TypeError: scaled_dot_product_attention(): argument 1 must be Tensor, not list
