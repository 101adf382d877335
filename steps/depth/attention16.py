"""Step attention16: The gradient of attention with fewer passes

For each block of 64 rows, the gradient of the scores S and what follows from it take five
operations: a product, a subtraction that repeats d along each row, a multiplication by E, and two
more products. Before them, five copies bring the inputs into order. With H = dL/dY / z:

    dL/dS = E * (H V^T - d),   d: the sums of the rows of H * Y

The subtraction is a product again, with one column more on the left and one row more on the right:

    H V^T - d = [H, d] [V, -1]^T

NumPy multiplies matrices whose rows are apart in memory, as those of Q, K and dL/dY are here,
without a copy; only V^T has to be copied. It also writes results to such places: directly to gq,
and to gk and gv where they hold nothing yet. The last rows of queries see all keys that the others
see. So the blocks are visited in reverse: the first one writes gk and gv, and the others add to
them.

With create_graph=True, all this must be operations on Tensors, which may not be written in place.
So the formula is written a second time, as operations on whole Tensors, and the demo compares the
two.

The trap: with dropout, d is subtracted after the factor `keep`, and not in the product.

Changed: Attention (blocks, backward). New: Attention.formula, in place of input_gradients.
Try: visit the blocks forwards. Which line of the demo breaks?
"""

import importlib
import math
import timeit
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as grad_of
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

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def plain(x: Any) -> Any:
    """The array of a tensor; what is not a tensor as it is."""
    return x.array if isinstance(x, Tensor) else x


def part(x: Any, key: tuple) -> Any:
    """x[key], or None where there is no x."""
    return None if x is None else x[key]


class Attention(Function):
    """Y = P V, where P = softmax(s Q K^T + mask): row i of P is what query i takes of each value.

    Kept are E = exp(s Q K^T + mask - top) and the sums of its rows, z: P = E / z. It is cheaper to
    divide Y and its gradient by z than P, which is larger. With H = dL/dY / z:

        dL/dV = E^T H,   dL/dS = E * (H V^T - the sums of the rows of H * Y),
        dL/dQ = s dL/dS K,   dL/dK = s dL/dS^T Q,   dL/dmask = dL/dS

    A row in which nothing is allowed is 0, and so are its gradients. Arrays are computed in blocks
    of E that fit the cache; in causal attention the blocks above the diagonal are left out. A
    further column beside V spares two passes over E:

        E [V, 1] = [E V, z],   [H, d] [V, -1]^T = H V^T - d,   d: the sums of the rows of H * Y
    """

    saves = 0, 1, 2, 3, 4, None, ~0, None
    limit = 60.0  # exp(60) times the length of a row is far from overflow, and exp(-60) is not 0
    chunk = 1 << 19  # bytes of E in one block
    causal_rows = 64  # rows of E in one block of causal attention

    def blocks(ctx, e_shape: tuple[int, ...], itemsize: int) -> list[tuple]:
        """Of each block the indices in E, in Q and Y, in K and V, and in the transposes of K and V;
        and whether it holds the last rows, which see the most keys."""
        n, m = e_shape[-2:]
        step = max(1, ctx.chunk // max(1, math.prod(e_shape[1:]) * itemsize))
        rows, blocks, every = ctx.causal_rows if ctx.causal else max(n, 1), [], slice(None)
        for start in range(0, n, rows):
            # A causal block of queries sees no keys beyond its own last row.
            i, j = slice(start, start + rows), slice(start + rows if ctx.causal else m)
            last = start + rows >= n
            for first in range(0, e_shape[0], step):
                b = slice(first, first + step), ...
                blocks.append(((*b, i, j), (*b, i, every), (*b, j, every), (*b, every, j), last))
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

    def exponentials(ctx, q: Any, k_t: Any, mask: Any, allowed: Any) -> Any:
        """E before what is not allowed becomes 0, of arrays or Tensors; k_t is s K^T."""
        scores = q @ k_t
        if mask is not None:
            scores = scores + mask
        top = ctx.largest(scores, allowed)
        if top is not None:  # a score that is not allowed may be far above it
            top = wrap(top, ctx.device) if ctx.xp is Tensor else top
            scores = ctx.xp.clip(scores - top, None, 1.0)
        return ctx.xp.exp(scores)

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
        k_t = xp.multiply(k.swapaxes(-1, -2), scale, order="C")
        v_1, kept = xp.empty((*v.shape[:-1], v.shape[-1] + 1), v.dtype), []
        v_1[..., :-1], v_1[..., -1] = v, 1
        for block in ctx.blocks(shape, q.dtype.itemsize):
            in_e, in_q, in_k, in_k_t, _ = block
            may = part(allowed, in_e)
            e = ctx.exponentials(q[in_q], k_t[in_k_t], part(mask, in_e), may)
            if may is not None:
                e *= may
            yz = (e if keep is None else e * keep[in_e]) @ v_1[in_k]
            z = yz[..., -1:] if keep is None else e.sum(axis=-1, keepdims=True)
            z = z + (z == 0)
            xp.divide(yz[..., :-1], z, out=y[in_q])
            kept.append((*block, e, z))
        ctx.save_for_backward(q, k, v, mask, allowed, keep, y, kept)
        return y

    def backward(ctx, g: Any) -> Any:
        q, k, v, mask, allowed, keep, y, kept = ctx.saved
        if ctx.xp is Tensor:
            return ctx.formula(g, q, k, v, mask, allowed, keep, y)
        xp, gq, gk, gv = ctx.xp, *map(ctx.xp.zeros_like, (q, k, v))
        # Argument 3 is the mask. Its gradient is large, and seldom needed.
        gs = None if ctx.edges[3] is None else xp.zeros_like(mask)
        q, k = q * ctx.scale, k * ctx.scale
        v_t = xp.empty((*v.shape[:-2], v.shape[-1] + 1, v.shape[-2]), v.dtype)
        v_t[..., :-1, :], v_t[..., -1, :] = v.swapaxes(-1, -2), -1
        for in_e, in_q, in_k, in_k_t, last, e, z in reversed(kept):
            h_d = xp.empty((*z.shape[:-1], v_t.shape[-2]), v.dtype)
            h, d = h_d[..., :-1], h_d[..., -1:]
            xp.divide(g[in_q], z, out=h)
            xp.matmul(h[..., None, :], y[in_q][..., None], out=d[..., None])
            if keep is None:
                ds, e_t = h_d @ v_t[in_k_t], e.swapaxes(-1, -2)
            else:
                ds, e_t = h @ v_t[in_k_t][..., :-1, :], (e * keep[in_e]).swapaxes(-1, -2)
                ds *= keep[in_e]
                ds -= d
            ds *= e
            xp.matmul(ds, k[in_k], out=gq[in_q])
            if last:
                xp.matmul(ds.swapaxes(-1, -2), q[in_q], out=gk[in_k])
                xp.matmul(e_t, h, out=gv[in_k])
            else:
                gk[in_k] += ds.swapaxes(-1, -2) @ q[in_q]
                gv[in_k] += e_t @ h
            if gs is not None:
                gs[in_e] = ds
        return gq, gk, gv, gs

    def formula(
        ctx, g: Tensor, q: Any, k: Any, v: Any, mask: Any, allowed: Any, keep: Any, y: Tensor
    ) -> tuple:
        """backward on Tensors, all at once. E and z are functions of Q, K and the mask here."""
        e = ctx.exponentials(q, k.swapaxes(-1, -2) * ctx.scale, mask, allowed)
        e = e if allowed is None else e * allowed
        z = e.sum(-1, keepdim=True)
        h = g / (z + (z == 0))
        gs = h @ v.swapaxes(-1, -2)
        gs = gs if keep is None else gs * keep
        gs = (gs - (h * y).sum(-1, keepdim=True)) * e
        e = e if keep is None else e * keep
        return gs @ k * ctx.scale, gs.mT @ q * ctx.scale, e.mT @ h, gs

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
        x if x.array.shape[:-2] == lead else broadcast_to(x, (*lead, *x.array.shape[-2:]))
        for x in (cast(x, computed) for x in (query, key, value))
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
    inputs = [randn(4, 4, 256, 32, requires_grad=True) for _ in range(3)]
    ones_like_y = ones(4, 4, 256, 32)

    # The same gradients as on Tensors, where the formula is computed without blocks.
    def gradients(create_graph, **how):
        manual_seed(1)  # the same weights are dropped
        y = scaled_dot_product_attention(*inputs, **how)
        return grad_of(y, inputs, ones_like_y, create_graph=create_graph)

    mask = randn(256, 256, requires_grad=True)
    ways = {
        "causal": {"is_causal": True},
        "dropout": {"dropout_p": 0.5},
        "mask": {"attn_mask": mask},
    }
    for name, how in ways.items():
        pairs = zip(gradients(False, **how), gradients(True, **how), strict=True)
        print(name, max((a - b).abs().max().item() for a, b in pairs) < 1e-4)
    # -> causal True
    # -> dropout True
    # -> mask True
    y = scaled_dot_product_attention(*inputs, mask, 0.5)
    print(grad_of(y.sum(), [mask])[0].shape)  # -> tinytorch.Size([256, 256])

    # The last rows come first, and only what comes after them is added.
    node = scaled_dot_product_attention(*inputs, is_causal=True).grad_fn
    blocks = [(e.shape[-1], last) for *_, last, e, z in reversed(node.saved[-1])]
    print(list(dict.fromkeys(blocks)))
    # -> [(256, True), (192, False), (128, False), (64, False)]

    # A subtraction as a part of a product.
    xp = inputs[0].device.xp
    h, v = (x.detach().array for x in (randn(16, 64, 32), randn(16, 64, 32)))
    d = h.sum(axis=-1, keepdims=True)
    h_d, v_t = xp.concatenate([h, d], axis=-1), xp.ascontiguousarray(v.swapaxes(-1, -2))
    more = xp.concatenate([v_t, xp.full((16, 1, 64), -1, v.dtype)], axis=-2)
    print("same:", abs(h_d @ more - (h @ v_t - d)).max() < 1e-4)  # -> same: True

    def seconds(function):
        return min(timeit.repeat(function, number=50, repeat=9))

    times = seconds(lambda: h_d @ more), seconds(lambda: h @ v_t - d)
    print(f"one product takes {times[0] / times[1]:.2f} of the time of product and difference")
    # -> ...
