"""Step attention18: Attention in blocks of keys: a running maximum and sum

The blocks of step attention06 are texts of a batch. A single long text has no smaller ones: its
scores are L x S numbers, and a row of them must be there as a whole, since softmax divides by the
sum of the row and subtracts its maximum. For 100,000 letters that is 40 GB for one head.

But a sum can be made in parts. Read the keys block by block, and keep three things for each query:
the largest score so far m, the sum z of exp(score - m), and the sum y of exp(score - m) * value. A
new block may bring a larger score. Then the old sums were made with the wrong maximum, all of them
by the same factor:

    new = max(m, the block's scores)        e = exp(scores - new)         [L, block]
    z = z exp(m - new) + sum of e           y = y exp(m - new) + e @ V    m = new

At the end y / z is the result. It is exact, not an approximation, and nothing is larger than
[L, block]. This is called online softmax (Milakov and Gimelshein, 2018). FlashAttention (Dao et
al., 2022) is this loop in one kernel of a GPU, whose blocks stay in shared memory (step 81a). For
backward it keeps only m + log z of each row, and computes the blocks again (as step 60c does).

The trap: a block in which a query may see nothing. Its scores are -inf, and so is the maximum of a
row that has seen nothing yet: -inf - -inf is nan. `safe` is 0 there.

PyTorch: scaled_dot_product_attention chooses such a kernel where it can. Ours holds whole rows, so
this step is for reading, and the package does not use it.

New: attention_by_blocks.
Try: leave `* factor` out of both sums. Which lines notice? Why not the one with the largest first?
"""

import importlib
import math
import tracemalloc

from tinytorch.autograd.backward import grad as grad_of
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.attention import scaled_dot_product_attention
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import full, ones, zeros
from tinytorch.ops.elementwise import maximum
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import triu

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def attention_by_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, block: int = 64
) -> Tensor:
    """scaled_dot_product_attention of [L, E], [S, E] and [S, V], never with more than L x block
    scores at once. A mask of booleans [L, S] says where a query may look."""
    scale, length = 1 / math.sqrt(query.shape[-1]), query.shape[0]
    top = full((length, 1), -math.inf)
    z, y = zeros(length, 1), zeros(length, value.shape[-1])
    for first in range(0, key.shape[0], block):
        part = slice(first, first + block)
        scores = query @ key[part].mT * scale
        if mask is not None:
            scores = where(mask[:, part], scores, -math.inf)
        new = maximum(top, scores.detach().amax(-1, keepdim=True))
        safe = where(new == -math.inf, 0.0, new)  # -inf - safe is -inf, where -inf - -inf is nan
        factor, e = (top - safe).exp(), (scores - safe).exp()
        z = z * factor + e.sum(-1, keepdim=True)
        y = y * factor + e @ value[part]
        top = new
    return y / z


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    # One query and the scores 1, 3, 2, 5, two at a time.
    scores = tensor([[1.0], [3.0], [2.0], [5.0]])
    values = tensor([[10.0], [20.0], [30.0], [40.0]])
    query = tensor([[1.0]])
    print(f"all at once   {scaled_dot_product_attention(query, scores, values).item():.4f}")
    # -> all at once   36.8806
    print(f"blocks of two {attention_by_blocks(query, scores, values, None, 2).item():.4f}")
    # -> blocks of two 36.8806
    last = scores.flip(0), values.flip(0)  # the largest score first: the maximum never changes
    print(f"largest first {attention_by_blocks(query, *last, None, 2).item():.4f}")
    # -> largest first 36.8806

    # A long text. What is the most memory that is in use at a time?
    manual_seed(0)
    q, k, v = (randn(2048, 16, requires_grad=True) for _ in range(3))
    peaks, results = [], []
    with no_grad():
        for attend in (scaled_dot_product_attention, attention_by_blocks):
            tracemalloc.start()
            results.append(attend(q, k, v))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    print("the same:", (results[0] - results[1]).abs().max().item() < 1e-5)  # -> the same: True
    print("a tenth of the memory or less:", peaks[1] < peaks[0] / 10)
    # -> a tenth of the memory or less: True

    # The gradient comes by itself. (It keeps each block, which the kernel computes again.)
    grads = [
        grad_of(attend(q, k, v)[:, 0].sum(), [q, k, v])
        for attend in (scaled_dot_product_attention, attention_by_blocks)
    ]
    print(all((a - b).abs().max().item() < 1e-4 for a, b in zip(*grads, strict=True)))  # -> True

    # Query i looks at the keys from i on: the last queries see nothing in the first blocks.
    allowed = triu(ones(200, 200)).bool()
    q, k, v = (x.detach()[:200] for x in (q, k, v))
    y = attention_by_blocks(q, k, v, allowed)
    print((y - scaled_dot_product_attention(q, k, v, allowed)).abs().max().item() < 1e-5)  # -> True
