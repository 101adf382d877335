"""Step attention14: Catalogue: the other options of MultiheadAttention

Skim this step: each option is a line or two of the same function, and the demo shows each once.

- kdim, vdim: keys and values of other sizes than the queries, so three matrices and not one.
- add_bias_kv: one more key and value for all queries, learned. add_zero_attn: one of zeros. With
  them a query that finds nothing has somewhere to look, and no row is without an allowed key.
- A single sentence, [L, E]: inside, it becomes a batch of one.
- batch_first: [N, L, E], as most programs have it. Two views.
- static_k and static_v are refused, and so is what does not fit, with an error that says why.

New: check_attention, NonDynamicallyQuantizableLinear (PyTorch's name of out_proj, seen when a
module is printed). Changed: in_projection, multi_head_attention_forward, MultiheadAttention.
Try: add_zero_attn with a padding mask that forbids all keys. What comes out?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float32
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.nn.init import constant_, xavier_normal_, xavier_uniform_
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
from tinytorch.ops.joining import cat, constant_pad
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
    inputs: tuple[Tensor, Tensor, Tensor], weights: list[Tensor], bias: Tensor | None
) -> list[Tensor]:
    """Query, key and value, each multiplied by its weights: one matrix [3E, E], or three."""
    query, key, value = inputs
    if len(weights) == 1 and query is key and key is value:
        return list(linear(query, weights[0], bias).chunk(3, -1))
    weights = weights if len(weights) == 3 else weights[0].chunk(3)
    biases = [None] * 3 if bias is None else bias.chunk(3)
    return [linear(*each) for each in zip(inputs, weights, biases, strict=True)]


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


def check_attention(
    inputs: tuple[Tensor, Tensor, Tensor], attn_mask: Any, padding_mask: Any, heads: int, e: int
) -> None:
    """Checks the shapes of what multi-head attention gets; `e` is the size of an embedding.

    Raises:
        AssertionError: the shapes of query, key, value or padding mask do not fit.
        RuntimeError: attn_mask has the wrong sizes.
    """
    query, key, value = (x.array.shape for x in inputs)
    ndim = len(query)
    if ndim not in (2, 3) or not ndim == len(key) == len(value) or key[:-1] != value[:-1]:
        raise AssertionError(f"the shapes {query}, {key}, {value} of query, key, value do not fit")
    if padding_mask is not None and padding_mask.array.ndim != ndim - 1:
        raise AssertionError(f"key_padding_mask should be {ndim - 1}-D for a {ndim}-D query")
    if query[-1] != e or e % heads:
        raise AssertionError(f"a query of size {query[-1]}, expected {e}, a multiple of {heads}")
    fitting = query[:1] + key[:1], (math.prod(query[1:-1]) * heads, query[0], key[0])
    if attn_mask is not None and attn_mask.array.shape not in fitting:
        raise RuntimeError(
            f"The shape of attn_mask is {attn_mask.array.shape}, but should be one of {fitting}"
        )


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: None = None,
    static_v: None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """What MultiheadAttention computes, with its parameters as arguments and the batch second.

    Raises:
        AssertionError, RuntimeError: shapes that do not fit, or is_causal without attn_mask.
        NotImplementedError: static_k or static_v is given.
    """
    e, batched = embed_dim_to_check, query.array.ndim == 3
    if static_k is not None or static_v is not None:
        raise NotImplementedError("keys and values that are given as static_k and static_v")
    check_attention((query, key, value), attn_mask, key_padding_mask, num_heads, e)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    separate = [q_proj_weight, k_proj_weight, v_proj_weight]
    weights = separate if use_separate_proj_weight else [in_proj_weight]
    q, k, v = in_projection((query, key, value), weights, in_proj_bias)
    if not batched:
        q, k, v = (x.unsqueeze(1) for x in (q, k, v))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    n = q.array.shape[1]
    # Keys and values that every query may look at: learned ones, and zeros.
    if bias_k is not None:
        k, v = (cat([x, b.repeat(1, n, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
    if add_zero_attn:
        k, v = (cat([x, zeros(1, n, e, dtype=x.dtype, device=x.device)]) for x in (k, v))
    more = k.array.shape[0] - key.array.shape[0]
    if more:
        is_causal = False
        attn_mask = None if attn_mask is None else constant_pad(attn_mask, (0, more))
        padding = key_padding_mask
        key_padding_mask = None if padding is None else constant_pad(padding, (0, more))
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
        found = found if batched else found.squeeze(0)
    elif is_causal and key_padding_mask is None:
        y = scaled_dot_product_attention(q, k, v, None, dropout_p, True)
    else:
        mask = logical_not(mask) if mask is not None and mask.dtype is bool_ else mask
        y = scaled_dot_product_attention(q, k, v, mask, dropout_p)
    y = linear(y.permute(2, 0, 1, 3).flatten(-2), out_proj_weight, out_proj_bias)
    return y if batched else y.squeeze(1), found


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear under the name by which PyTorch prints the output projection."""


class MultiheadAttention(Module):
    """Several attentions side by side, each on its own projection of the inputs.

        heads = [attention(Q Wq_h, K Wk_h, V Wv_h) for each head h];   Y = concatenated heads @ Wo

    The parameters are in_proj_weight [3E, E] with rows for Q, K and V (or q_proj_weight [E, E],
    k_proj_weight [E, kdim] and v_proj_weight [E, vdim]), in_proj_bias, out_proj, and with
    add_bias_kv one more key and value, bias_k and bias_v (Vaswani et al., 2017).

    Raises:
        ValueError: embed_dim or num_heads is not positive.
        AssertionError: the heads do not divide embed_dim.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device=None, dtype=None,
    ):  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        packed, apart = self._qkv_same_embed_dim, not self._qkv_same_embed_dim
        shapes = {
            "q_proj_weight": (embed_dim, embed_dim) if apart else None,
            "k_proj_weight": (embed_dim, self.kdim) if apart else None,
            "v_proj_weight": (embed_dim, self.vdim) if apart else None,
            "in_proj_weight": (3 * embed_dim, embed_dim) if packed else None,
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        like = {"device": device, "dtype": dtype}
        for name, shape in shapes.items():
            self.register_parameter(name, shape and Parameter(empty(shape, **like)))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **like)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draws the weights by Xavier's rule, in PyTorch's order; the biases are 0."""
        for name, param in self.named_parameters(recurse=False):
            if name.endswith("weight"):
                xavier_uniform_(param)
            elif name != "in_proj_bias":
                xavier_normal_(param)
        if self.in_proj_bias is not None:
            constant_(self.in_proj_bias, 0.0)
            constant_(self.out_proj.bias, 0.0)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(output, weights): [L, N, E] and the mean of the heads' weights [N, L, S], or None.

        Args:
            query, key, value: [L, N, E], [S, N, kdim], [S, N, vdim]; with batch_first the first
                two dimensions change places; without N for a single sequence.
            key_padding_mask: [N, S], True (or -inf) for keys that do not count.
            attn_mask: [L, S] or [N * heads, L, S], True (or -inf) where a query may not look. The
                opposite of what scaled_dot_product_attention takes, as in PyTorch.
            average_attn_weights: False gives the weights of each head, [N, heads, L, S].
            is_causal: says that attn_mask, which must be given, is the causal one.
        """
        swap = self.batch_first and query.array.ndim == 3
        if swap:
            same = query is key and key is value
            query = query.transpose(0, 1)
            key, value = (query if same else x.transpose(0, 1) for x in (key, value))
        y, weights = multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight,
            self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout,
            self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights,
            attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight, self.k_proj_weight,
            self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return y.transpose(0, 1) if swap else y, weights


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    print(MultiheadAttention(8, 2))
    # -> MultiheadAttention(
    # ->   (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)
    # -> )

    # Keys and values of other sizes.
    layer = MultiheadAttention(8, 2, kdim=5, vdim=3)
    y, weights = layer(randn(4, 2, 8), randn(6, 2, 5), randn(6, 2, 3))
    print([name for name, _ in layer.named_parameters()][:3], y.shape)
    # -> ['q_proj_weight', 'k_proj_weight', 'v_proj_weight'] tinytorch.Size([4, 2, 8])
    layer = MultiheadAttention(8, 2, bias=False)
    x = randn(4, 2, 8)
    print(layer(x, x + 0, x + 0)[0].shape)  # -> tinytorch.Size([4, 2, 8])

    # One more key, learned, and one of zeros: 4 keys become 6, and no query is without one.
    layer = MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True).eval()
    padding, future = ones(2, 4).bool(), logical_not(tril(ones(4, 4)).bool())
    y, weights = layer(x, x, x, padding, attn_mask=future)
    print(weights.shape, weights[0, 0, :4].tolist())
    # -> tinytorch.Size([2, 4, 6]) [0.0, 0.0, 0.0, 0.0]
    y = layer(x, x, x, None, False, future, is_causal=True)[0]
    print(y.shape)  # -> tinytorch.Size([4, 2, 8])

    # A single sentence, and the batch first.
    layer = MultiheadAttention(8, 2, batch_first=True).eval()
    one = randn(4, 8)
    y, weights = layer(one, one, one, zeros(4).bool())
    print(y.shape, weights.shape)  # -> tinytorch.Size([4, 8]) tinytorch.Size([4, 4])
    x = one.unsqueeze(0)
    print((layer(x, x, x)[0][0] - y).abs().max().item() < 1e-6)  # -> True
    memory = randn(1, 6, 8)
    print(layer(x, memory, memory, need_weights=False)[0].shape)  # -> tinytorch.Size([1, 4, 8])

    def refused(function):
        try:
            function()
        except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
            print(f"{type(error).__name__}: {str(error)[:78]}")

    refused(lambda: MultiheadAttention(0, 2))
    # -> ValueError: embed_dim and num_heads must be greater than 0, got embed_dim=0 and num_heads=
    refused(lambda: MultiheadAttention(8, 3))
    # -> AssertionError: embed_dim must be divisible by num_heads
    refused(lambda: layer(x, one, one))
    # -> AssertionError: the shapes (4, 1, 8), (8, 4), (8, 4) of query, key, value do not fit
    refused(lambda: layer(x, x, x, zeros(4).bool()))
    # -> AssertionError: key_padding_mask should be 2-D for a 3-D query
    refused(lambda: layer(randn(1, 4, 6), x, x))
    # -> AssertionError: a query of size 6, expected 8, a multiple of 2
    refused(lambda: layer(x, x, x, attn_mask=zeros(3, 4)))
    # -> RuntimeError: The shape of attn_mask is (3, 4), but should be one of ((4, 4), (2, 4, 4))
    refused(lambda: layer(x, x, x, is_causal=True))
    # -> RuntimeError: Need attn_mask if specifying the is_causal hint.
    given = [x, x, x, 8, 2, None, None, None, None, False, 0.0, None, None]
    refused(lambda: multi_head_attention_forward(*given, static_k=x))
    # -> NotImplementedError: keys and values that are given as static_k and static_v
    refused(lambda: layer(x, x, x, zeros(1, 4).long()))
    # -> AssertionError: only bool and floating types of key_padding_mask are supported
