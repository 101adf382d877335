"""Step attention04: Softmax without the maximum, where that is safe

softmax subtracts the largest of each row, so that exp cannot overflow. This is the most expensive
thing that attention does with its scores: to find the maximum of each row and to subtract it takes
longer than exp itself. And most of the time nothing would have overflowed. Scores that are divided
by sqrt(d) are small, a few units.

    exp(60) = 1e26,  float32 ends at 3e38:   rows of 10^12 scores have room
    exp(-60) = 9e-27, the smallest normal float32 is 1e-38:   no row becomes 0

So test first. If all scores lie between -60 and 60, E = exp(scores) is as accurate as with the
maximum taken out: a float has the same number of digits everywhere. The smallest and the largest of
the whole array are cheap: NumPy finds them several times as fast as the maximum of each row.

The trap: the test cannot be left out. Scores of 100 occur, in a trained network or with a mask of
large numbers; the demo has them. A nan compares as False, and so takes the slow way.

Changed: Attention.largest, Attention.exponentials.
Try: limit = 100. Which line of the demo notices?
"""

import importlib
import math
import timeit
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.broadcast import broadcast_to
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import manual_seed, randn
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

    saves = 0, 1, 2, 3, 4, ~0, None, None
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
    query, key, value = randn(3, 12, 4, 128, 32)

    def seconds(function):
        return min(timeit.repeat(function, number=1, repeat=9))

    # What each part costs, for scores of a batch of 12 with 4 heads and 128 words.
    scores = (query @ key.mT / 32**0.5).array
    parts = {
        "all, smallest and largest": lambda: (scores.min(), scores.max()),
        "the largest of each row": lambda: extreme_rows(scores, "max"),
        "scores - largest": lambda: scores - 1.0,
        "exp": lambda: Tensor.exp(wrap(scores, query.device)),
    }
    for name, function in parts.items():
        print(f"{name:26} {seconds(function) * 1e3:5.2f} ms")  # -> ...

    def attend(limit):
        Attention.limit = limit
        return scaled_dot_product_attention(query, key, value)

    fast, slow = attend(60.0), attend(0.0)
    print("same:", (fast - slow).abs().max().item() < 1e-6)  # -> same: True
    print(
        f"{seconds(lambda: attend(60.0)) / seconds(lambda: attend(0.0)):.2f} of the time"
    )  # -> ...
    Attention.limit = 60.0

    # Large scores go the safe way, with and without a mask, and so do empty ones.
    q = 100 * randn(3, 8)
    y = scaled_dot_product_attention(q, q, q, scale=1.0)
    print((y - q).abs().max().item())  # -> 0.0
    y = scaled_dot_product_attention(q, q, q, is_causal=True, scale=1.0)
    print((y - q).abs().max().item())  # -> 0.0
    print(scaled_dot_product_attention(q, q[:0], q[:0]).abs().max().item())  # -> 0.0

    # A score of 95 is too large for exp in float32, whose limit is 88.
    one = tensor([[1.0]])
    print(scaled_dot_product_attention(one, 95 * one, one).item())  # -> 1.0
