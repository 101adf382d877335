"""Step attention11: MultiheadAttention: the layer

Step attention09 has a function and four loose tensors. In a Module they have names, an optimizer
finds them, and they can be saved and moved. The names are PyTorch's, because files of trained
networks have them.

    in_proj_weight [3E, E]    the rows for Q, then those for K, then those for V
    in_proj_bias [3E],   out_proj.weight [E, E],   out_proj.bias [E]

The initial values: Xavier's rule (step init03) draws in_proj_weight as one matrix with E inputs and
3E outputs, from [-b, b) with b = sqrt(6 / (E + 3E)). As three matrices [E, E] they would get sqrt(6
/ (E + E)), which is 1.4 times as much. PyTorch draws one. The biases begin with 0, out_proj as a
Linear does.

Dropout works on the weights (step attention05). A module knows whether it is in training: eval()
switches dropout off.

The trap: num_heads does not show in the parameters. The same state_dict fits a layer with 1, 2 or 4
heads, and computes something else in each.

New: MultiheadAttention. Changed: multi_head_attention_forward.
Try: load the state of a layer with 2 heads into one with 4.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float32
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.nn.init import constant_, xavier_uniform_
from tinytorch.nn.modules.linear import Linear, linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_to
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import empty
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.gather import repeat_interleave
from tinytorch.ops.matmul import check_operands
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.random import generator_for, manual_seed, randn
from tinytorch.ops.reduction import Sum
from tinytorch.optim.adam import Adam

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
) -> Tensor:
    """What MultiheadAttention computes, with its parameters as arguments and the batch second."""
    q, k, v = in_projection((query, key, value), in_proj_weight, in_proj_bias)
    # [L, N, E] -> [N, heads, L, E / heads]: the heads are further batches.
    q, k, v = (x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
    dropout_p = dropout_p if training else 0.0
    y = scaled_dot_product_attention(q, k, v, None, dropout_p)
    return linear(y.permute(2, 0, 1, 3).flatten(-2), out_proj_weight, out_proj_bias)


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

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [L, N, E], key [S, N, E] and value [S, N, E] give [L, N, E]."""
        return multi_head_attention_forward(
            query, key, value, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.dropout,
            self.out_proj.weight, self.out_proj.bias, self.training,
        )  # fmt: skip


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer = MultiheadAttention(16, 2, dropout=0.1)
    print(layer)
    # -> MultiheadAttention(
    # ->   (out_proj): Linear(in_features=16, out_features=16, bias=True)
    # -> )
    for name, param in layer.named_parameters():
        print(name, list(param.shape))
    # -> in_proj_weight [48, 16]
    # -> in_proj_bias [48]
    # -> out_proj.weight [16, 16]
    # -> out_proj.bias [16]
    bound = (6 / (48 + 16)) ** 0.5
    print(0.98 * bound < layer.in_proj_weight.abs().max().item() < bound)  # -> True
    print(layer.in_proj_bias.abs().max().item(), layer.out_proj.bias.abs().max().item())
    # -> 0.0 0.0
    print(len(list(MultiheadAttention(16, 2, bias=False).parameters())))  # -> 2

    # With dropout two calls differ; eval() switches it off.
    x = randn(5, 3, 16)
    print((layer(x, x, x) == layer(x, x, x)).all().item())  # -> False
    layer.eval()
    print((layer(x, x, x) == layer(x, x, x)).all().item())  # -> True

    # What one query reads in another sequence.
    print(layer(x[:1], x, x).shape)  # -> tinytorch.Size([1, 3, 16])

    # Training: every word is to become the mean of all words. Equal weights do it.
    layer = MultiheadAttention(16, 2)
    optimizer = Adam(layer.parameters(), lr=0.01)
    for step in range(201):
        x = randn(5, 32, 16)
        loss = (layer(x, x, x) - x.mean(0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{loss.item():.3f}")
    # -> 0.255
    # -> 0.009
    # -> 0.000

    try:
        MultiheadAttention(16, 3)
    except AssertionError as error:
        print(error)  # -> embed_dim must be divisible by num_heads
