"""Step attention03: Attention masks, and causal attention

A network that learns to write must not read ahead: if word 3 can look at word 4, then "predict word
4" is only copying. In training, all words of a text are there at once. The demo takes the gradient
of the first result: it depends on all four words.

So a score that must not count becomes -inf before the softmax: exp(-inf) = 0. The weight is 0
exactly, and so is every derivative that would flow through it. The others still add up to 1:

    word        1   2   3   4
       1        x   -   -   -
       2        x   x   -   -         is_causal: word i looks at the words 1 to i
       3        x   x   x   -
       4        x   x   x   x

All L predictions are still made in one product: that is why such networks train fast. A mask says
the same for any pattern: of booleans, True for "may look"; of floats, added to the scores, which
can also say "rather not": -1 for each step of distance (ALiBi, Press et al., 2021).

Setting weights to 0 after the softmax is not enough: the rest no longer adds up to 1, and its sum
shows how large the hidden scores were.

The trap: a row in which nothing is allowed. Its softmax is 0 / 0 = nan. That happens where a short
sequence was padded, and one nan makes all gradients nan. Step attention05 repairs it.

New: attn_mask, is_causal.
Try: a mask of -1e9 in place of -inf: the row without an allowed key, y[2] at the end, is no longer
nan. Print it, and v.mean(0) for the values v = x: what is it?
"""

import importlib
import math

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as gradients
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.nn.class_loss import softmax
from tinytorch.ops.comparison import logical_not
from tinytorch.ops.creation import arange, eye, ones, zeros
from tinytorch.ops.gather import masked_fill
from tinytorch.ops.parts import tril
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
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

    # Without a mask, the first result depends on the last word; with it, on the first alone.
    for is_causal in (False, True):
        y = scaled_dot_product_attention(x, x, x, is_causal=is_causal)
        (grad,) = gradients(y[0].sum(), [x])
        print(is_causal, [word.abs().max().item() > 0 for word in grad])
    # -> False [True, True, True, True]
    # -> True [True, False, False, False]

    # The first word can look at itself only, so its weight is 1.
    y = scaled_dot_product_attention(x, x, x, is_causal=True)
    print((y[0] - x[0]).abs().max().item())  # -> 0.0

    # The same as a mask of booleans, and as one of floats.
    allowed = tril(ones(4, 4)).bool()
    added = masked_fill(zeros(4, 4), logical_not(allowed), -math.inf)
    for mask in (allowed, added):
        print((scaled_dot_product_attention(x, x, x, mask) - y).abs().max().item())
    # -> 0.0
    # -> 0.0

    # "The further away, the less": -1 for each step of distance, between words that are equal.
    distance = arange(4).unsqueeze(1) - arange(4)
    weights = scaled_dot_product_attention(
        zeros(4, 8), zeros(4, 8), eye(4), -distance.abs().float()
    )
    print([round(w, 2) for w in weights[0].tolist()])  # -> [0.64, 0.24, 0.09, 0.03]

    # Set to 0 after the softmax, the weights of a row no longer add up to 1.
    late = softmax(x.detach() @ x.detach().mT / 8**0.5, -1) * allowed
    print([round(row, 2) for row in late.sum(-1).tolist()])  # -> ...

    # The trap: word 3 may look at nothing.
    allowed[2] = False
    y = scaled_dot_product_attention(x, x, x, allowed)
    print([bool(row.isnan().any()) for row in y])  # -> [False, False, True, False]
    y[0].sum().backward()
    print("gradient of the first result:", "nan" if x.grad.isnan().any() else "finite")
    # -> gradient of the first result: nan
