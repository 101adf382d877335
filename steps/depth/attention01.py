"""Step attention01: Attention in the package's dress: any mask, any scale

Steps 57a and 57b built softmax(Q K^T / sqrt(d)) V, and the causal mask. Here the function gets its
annotations, PyTorch's order of arguments, and the two that are still missing:

    attn_mask   of booleans: True where a query may look
                of floats: added to the scores, so that -inf forbids, and -1 says "rather not"
    scale       the factor of the scores; 1 / sqrt(d) if None is given

With -1 for each step of distance a word looks less at what is far away (ALiBi, Press et al., 2021).
is_causal is now one of these masks, a triangle of booleans (`tril` of step parts06).

The trap: a row in which nothing is allowed. Its softmax is 0 / 0 = nan. That happens where a short
sequence was padded, and one nan makes all gradients nan. Step attention03 repairs it.

Changed: scaled_dot_product_attention.
Try: a mask of -1e9 in place of -inf: the row without an allowed key, y[2] at the end, is no longer
nan. Print it, and v.mean(0) for the values v = x: what is it?
"""

import importlib
import math

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.softmax import softmax
from tinytorch.ops.comparison import logical_not
from tinytorch.ops.creation import arange, eye, ones, zeros
from tinytorch.ops.gather import masked_fill
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import tril

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
    scores = query @ key.mT * scale
    if is_causal:
        attn_mask = tril(ones(query.array.shape[-2], key.array.shape[-2])).bool()
    if attn_mask is not None and attn_mask.dtype is bool_:
        scores = masked_fill(scores, logical_not(attn_mask), -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores, -1) @ value


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    x = randn(4, 8, requires_grad=True)

    # is_causal, the same as a mask of booleans, and as one of floats.
    y = scaled_dot_product_attention(x, x, x, is_causal=True)
    allowed = tril(ones(4, 4)).bool()
    added = masked_fill(zeros(4, 4), logical_not(allowed), -math.inf)
    for mask in (allowed, added):
        print((scaled_dot_product_attention(x, x, x, mask) - y).abs().max().item())
    # -> 0.0
    # -> 0.0

    # Without a scale it is the root of the size of a query.
    y = scaled_dot_product_attention(x, x, x)
    print((scaled_dot_product_attention(x, x, x, scale=8**-0.5) - y).abs().max().item())  # -> 0.0

    # "The further away, the less": -1 for each step of distance, between words that are equal.
    distance = arange(4).unsqueeze(1) - arange(4)
    weights = scaled_dot_product_attention(
        zeros(4, 8), zeros(4, 8), eye(4), -distance.abs().float()
    )
    print([round(w, 2) for w in weights[0].tolist()])  # -> [0.64, 0.24, 0.09, 0.03]

    # The trap: word 3 may look at nothing.
    allowed[2] = False
    y = scaled_dot_product_attention(x, x, x, allowed)
    print([bool(row.isnan().any()) for row in y])  # -> [False, False, True, False]
    y[0].sum().backward()
    print("gradient of the first result:", "nan" if x.grad.isnan().any() else "finite")
    # -> gradient of the first result: nan
