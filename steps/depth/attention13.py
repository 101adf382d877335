"""Step attention13: Padding masks

Sentences of a batch differ in length. The short ones are filled up with some number, and attention
looks at these fillers as at any word. In the demo, the result for a sentence depends on what fills
it up.

A key_padding_mask [N, S] says for each sentence which keys do not count. The attn_mask of step
attention01, [L, S], says for each query where it may look, in all sentences. Both hold: a key
counts if neither forbids it.

    padding [N, S] -> [N, 1, 1, S]        for all heads and queries of a sentence
    attn_mask [L, S], or [N * heads, L, S] -> [N, heads, L, S]

Two masks of booleans are combined by "or". Otherwise both are turned into floats, -inf for what is
forbidden, and added.

The trap, which is PyTorch's: here True means "may NOT look", in scaled_dot_product_attention it
means "may look". A mask that was made for one of them is wrong in the other, without an error.

Another trap: is_causal does not make a mask. It is a hint that attn_mask is the causal one, so that
step attention07 can be used instead of the mask.

Changed: multi_head_attention_forward, MultiheadAttention. New: additive, merged_mask.
Try: give the padding mask the other way round, ~padding.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float32
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.nn.init import constant_, xavier_uniform_
from tinytorch.nn.modules.dropout import dropout
from tinytorch.nn.modules.linear import Linear, linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.softmax import softmax
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_to
from tinytorch.ops.comparison import logical_not
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import empty, ones, zeros
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.gather import masked_fill, repeat_interleave
from tinytorch.ops.matmul import check_operands
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
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key^T * scale + mask) @ value, with scale = 1 / sqrt(E) by default.

    Args:
        query, key, value: [..., L, E], [..., S, E] and [..., S, V]; the result is [..., L, V].
        attn_mask: broadcasts to [..., L, S]. Of booleans: True where a query may look. Of floats:
            added to the scores. A query that may look nowhere gets 0.
        dropout_p: the probability with which a weight becomes 0, also outside of training.
        is_causal: query i may look at the keys 0 to i.
        enable_gqa: dimension -3 of query holds more heads than those of key and value, which are
            shared out evenly (Ainslie et al., 2023).
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
    if enable_gqa:
        heads = [shape[-3] for shape in shapes]
        if any(n == 0 or heads[0] % n for n in heads[1:]):
            raise RuntimeError(f"{heads[1]} and {heads[2]} heads do not divide {heads[0]}")
        key = repeat_interleave(key, heads[0] // heads[1], -3)
        value = repeat_interleave(value, heads[0] // heads[2], -3)
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


def in_projection(
    inputs: tuple[Tensor, Tensor, Tensor], weight: Tensor, bias: Tensor | None
) -> list[Tensor]:
    """Query, key and value, each multiplied by its third of the matrix [3E, E]."""
    query, key, value = inputs
    if query is key and key is value:
        return list(linear(query, weight, bias).chunk(3, -1))
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return [linear(*each) for each in zip(inputs, weight.chunk(3), biases, strict=True)]


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to be added to the scores: -inf where one of booleans says True."""
    if mask.dtype is not bool_:
        return mask
    nothing = zeros(mask.array.shape, dtype=like.dtype, device=like.device)
    return masked_fill(nothing, mask, -math.inf)


def merged_mask(attn_mask: Any, padding_mask: Any, query: Tensor) -> Tensor | None:
    """Both masks of multi-head attention in one that broadcasts to [N, heads, L, S], or None.

    `query` is [N, heads, L, E], attn_mask [L, S] or [N * heads, L, S], padding_mask [N, S].
    """
    for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", padding_mask)):
        if mask is not None and not (mask.dtype is bool_ or mask.is_floating_point()):
            raise AssertionError(f"only bool and floating types of {name} are supported")
    n, heads = query.array.shape[:2]
    if attn_mask is not None and attn_mask.array.ndim == 3:
        attn_mask = attn_mask.reshape(n, heads, *attn_mask.array.shape[1:])
    if padding_mask is None:
        return attn_mask
    padding_mask = padding_mask.reshape(n, 1, 1, -1)
    if attn_mask is None:
        return padding_mask
    if attn_mask.dtype is bool_ and padding_mask.dtype is bool_:
        return attn_mask | padding_mask
    return additive(attn_mask, query) + additive(padding_mask, query)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What MultiheadAttention computes, with its parameters as arguments and the batch second."""
    e = query.array.shape[-1]
    q, k, v = in_projection((query, key, value), in_proj_weight, in_proj_bias)
    # [L, N, E] -> [N, heads, L, E / heads]: the heads are further batches.
    q, k, v = (x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
    dropout_p = dropout_p if training else 0.0
    mask, found = merged_mask(attn_mask, key_padding_mask, q), None
    if need_weights:
        scores = (q / math.sqrt(e // num_heads)) @ k.mT
        scores = scores if mask is None else scores + additive(mask, q)
        found = dropout(softmax(scores, -1), dropout_p)
        y = found @ v
        found = found.mean(1) if average_attn_weights else found
    elif is_causal and key_padding_mask is None:
        y = scaled_dot_product_attention(q, k, v, None, dropout_p, True)
    else:
        mask = logical_not(mask) if mask is not None and mask.dtype is bool_ else mask
        y = scaled_dot_product_attention(q, k, v, mask, dropout_p)
    return linear(y.permute(2, 0, 1, 3).flatten(-2), out_proj_weight, out_proj_bias), found


class MultiheadAttention(Module):
    """Several attentions side by side, each on its own projection of the inputs.

        heads = [attention(Q Wq_h, K Wk_h, V Wv_h) for each head h];   Y = concatenated heads @ Wo

    The parameters are in_proj_weight [3E, E] with rows for Q, K and V, in_proj_bias, and out_proj
    (Vaswani et al., 2017).

    Raises:
        AssertionError: the heads do not divide embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        device=None,
        dtype=None,
    ):
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout = dropout
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        like = {"device": device, "dtype": dtype}
        for name, shape in shapes.items():
            self.register_parameter(name, shape and Parameter(empty(shape, **like)))
        self.out_proj = Linear(embed_dim, embed_dim, bias, **like)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draws the weights by Xavier's rule, in PyTorch's order; the biases are 0."""
        for name, param in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                xavier_uniform_(param)
        if self.in_proj_bias is not None:
            constant_(self.in_proj_bias, 0.0)
            constant_(self.out_proj.bias, 0.0)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(output, weights): [L, N, E] and the mean of the heads' weights [N, L, S], or None.

        Args:
            query, key, value: [L, N, E], [S, N, E], [S, N, E].
            key_padding_mask: [N, S], True (or -inf) for keys that do not count.
            attn_mask: [L, S] or [N * heads, L, S], True (or -inf) where a query may not look. The
                opposite of what scaled_dot_product_attention takes, as in PyTorch.
            average_attn_weights: False gives the weights of each head, [N, heads, L, S].
            is_causal: says that attn_mask, which must be given, is the causal one.
        """
        return multi_head_attention_forward(
            query, key, value, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.dropout,
            self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights,
            attn_mask, average_attn_weights, is_causal,
        )  # fmt: skip


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer = MultiheadAttention(8, 2).eval()

    # Two sentences, of 5 and of 3 words. What fills the second must not count.
    x = randn(5, 2, 8)
    padding = tensor([[False] * 5, [False, False, False, True, True]])
    other = x.clone()
    other[3:, 1] = 100.0
    for mask in (None, padding):
        y, z = (layer(words, words, words, mask)[0] for words in (x, other))
        print("the same for another filling:", (y[:3] == z[:3]).all().item())
    # -> the same for another filling: False
    # -> the same for another filling: True
    weights = layer(x, x, x, padding)[1]
    print("fillers get", weights[1, :, 3:].abs().max().item())  # -> fillers get 0.0

    # The short sentence alone gives the same.
    alone = layer(x[:3, 1:], x[:3, 1:], x[:3, 1:])[0]
    print((layer(x, x, x, padding)[0][:3, 1:] - alone).abs().max().item() < 1e-6)  # -> True

    # Both masks together, as booleans and as floats, with weights and without: all the same.
    future = logical_not(tril(ones(5, 5)).bool())
    floats = masked_fill(zeros(5, 5), future, -math.inf)
    expected = layer(x, x, x, padding, attn_mask=future)[0]
    same = []
    for mask in (future, floats, future.unsqueeze(0).expand(4, 5, 5)):
        for need_weights in (True, False):
            y = layer(x, x, x, padding, need_weights, mask)[0]
            same.append((y - expected).abs().max().item() < 1e-6)
    print(same)  # -> [True, True, True, True, True, True]

    # One mask alone; and the hint that it is the causal one.
    y = layer(x, x, x, need_weights=False, attn_mask=future)[0]
    z = layer(x, x, x, need_weights=False, attn_mask=future, is_causal=True)[0]
    print((y - z).abs().max().item() < 1e-6)  # -> True
    try:
        layer(x, x, x, padding.long())
    except AssertionError as error:
        print(error)  # -> only bool and floating types of key_padding_mask are supported
