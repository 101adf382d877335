"""Step attention02: Attention as one node

Step attention01 is attention in its simple form, with the whole idea in it. The steps attention02,
attention04, attention06 and attention07 compute the same, in a faster way.

The simple form makes six nodes: a transposition, a product, a factor, a mask, a softmax, a product.
The four in the middle make an array [L, S] each. For long texts these are by far the largest arrays
of the network.

One Function keeps a single one of them, E = exp(scores - top), where top is the largest score of
each row, and the sums z of the rows of E. With the scale s:

    Y = (E V) / z              divide the small result, not the large weights
    H = dL/dY / z,   dL/dV = E^T H
    dL/dS = E * (H V^T - the sums of the rows of H * Y)     softmax, backwards (step softmax01)
    dL/dQ = s dL/dS K,   dL/dK = s dL/dS^T Q                the product, backwards (step 37a)

The softmax needs "the sum of g_k y_k" of each row: it is the same number as the sum of H * Y, which
costs less, because Y has fewer columns than E. A mask is added to the scores, one of booleans as 0
and -inf; dL/dS is its gradient too.

The trap: for a second derivative E has to be a function of Q and K, not an array that was kept. So
backward on Tensors computes it again. top can be a constant, because subtracting it does not change
Y.

(PyTorch's node of this kind, for x of four dimensions, has the name that is printed here; for fewer
dimensions PyTorch takes single operations.)

`saves` declares what is kept (step node02): arguments 0 to 3, the result ~0, and None for E and z,
which are constants.

Changed: scaled_dot_product_attention. New: Attention, plain.
Try: leave out the two lines of backward that compute E and z again. Which line notices?
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
    """

    saves = 0, 1, 2, 3, ~0, None, None

    def largest(ctx, scores: Any) -> Any:
        """The largest score of each row."""
        return extreme_rows(ctx.device.xp.asarray(plain(scores), order="C"), "max")

    def exponentials(ctx, q: Any, k_t: Any, mask: Any) -> tuple[Any, Any]:
        """E, and z, of arrays or Tensors; k_t is K^T."""
        scores = (q * ctx.scale) @ k_t  # the smaller factor is scaled
        if mask is not None:
            scores = scores + mask
        top = ctx.largest(scores)
        top = wrap(top, ctx.device) if ctx.xp is Tensor else top
        e = ctx.xp.exp(scores - top)
        return e, ctx.call(Sum, e, (e.ndim - 1,), True)

    def forward(ctx, q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        ctx.scale = scale
        e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask)
        y = (e @ v) / z
        ctx.save_for_backward(q, k, v, mask, y, e, z)
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
        q, k, v, mask, y, e, z = ctx.saved
        if ctx.xp is Tensor:  # E and z once more, as functions of Q, K and the mask
            e, z = ctx.exponentials(q, k.swapaxes(-1, -2), mask)
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
            added to the scores.
        is_causal: query i may look at the keys 0 to i.
    """
    scale = 1 / math.sqrt(query.array.shape[-1]) if scale is None else scale
    sizes = (*query.array.shape[:-1], key.array.shape[-2])  # of the scores
    if is_causal:
        attn_mask = tril(ones(*sizes[-2:])).bool()
    if attn_mask is not None and attn_mask.dtype is bool_:
        nothing = zeros(attn_mask.array.shape, dtype=query.dtype)
        attn_mask = masked_fill(nothing, logical_not(attn_mask), -math.inf)
    if attn_mask is not None:
        attn_mask = broadcast_to(attn_mask, sizes)
    return Attention.apply(query, key, value, attn_mask, scale)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    def composed(query, key, value, mask):
        """Step attention01: a node for each operation."""
        scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]))
        scores = masked_fill(scores, logical_not(mask), -math.inf)
        return softmax(scores, -1) @ value

    mask = tril(ones(64, 64)).bool()

    def gradients(function, *inputs):
        y = function(*inputs[:3], mask)
        return y, grad_of(y, inputs[:3], ones(*y.shape))

    inputs = [randn(12, 4, 64, 32, requires_grad=True) for _ in range(3)]
    y, grads = gradients(scaled_dot_product_attention, *inputs)
    expected, others = gradients(composed, *inputs)
    print("same values:", (y - expected).abs().max().item() < 1e-5)  # -> same values: True
    differences = [(a - b).abs().max().item() for a, b in zip(grads, others, strict=True)]
    print("same gradients:", max(differences) < 1e-4)  # -> same gradients: True

    def nodes(y):
        seen, waiting = set(), [y.grad_fn]
        while waiting:
            node = waiting.pop()
            if node not in seen and node.next_functions:
                seen.add(node)
                waiting += [each for each, _ in node.next_functions if each]
        return len(seen)

    print("nodes:", nodes(y), "instead of", nodes(expected))  # -> nodes: 1 instead of 6
    one, several = (
        min(timeit.repeat(lambda f=f: gradients(f, *inputs), number=1, repeat=7))
        for f in (scaled_dot_product_attention, composed)
    )
    print(f"one node takes {one / several:.2f} of the time of several")  # -> ...

    # The three kinds of masks.
    x = randn(4, 8, requires_grad=True)
    y = scaled_dot_product_attention(x, x, x, is_causal=True)
    print((y[0] - x[0]).abs().max().item())  # -> 0.0
    allowed = tril(ones(4, 4)).bool()
    added = masked_fill(zeros(4, 4), logical_not(allowed), -math.inf)
    for mask in (allowed, added):
        print((scaled_dot_product_attention(x, x, x, mask) - y).abs().max().item())
    # -> 0.0
    # -> 0.0

    # Also on Tensors, for a second derivative, which is that of step attention01.
    def slope(function):
        (grad,) = grad_of(function(x, x, x, allowed).square().sum(), [x], create_graph=True)
        return grad_of(grad.square().sum(), [x])[0]

    difference = slope(scaled_dot_product_attention) - slope(composed)
    print(difference.abs().max().item() < 1e-3, y.grad_fn.name())
    # -> True ScaledDotProductFlashAttentionForCpuBackward0
