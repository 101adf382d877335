"""Step attention02: Scaled dot products: dividing by sqrt(d)

In step attention01 the numbers were chosen with care. Take vectors of d random components of
variance 1 instead, as a network has them at the start. A dot product is a sum of d products, each
of mean 0 and variance 1, so its variance is d:

    q . k = q_1 k_1 + ... + q_d k_d,     standard deviation sqrt(d)

With d = 1024 the scores of one row differ by about 32, and exp(32) is 10^14. The softmax puts all
weight on one key, chosen by chance. And it stays there: the derivative of a weight p is p (1 - p),
which is 0 for p = 1 as for p = 0. The demo measures how much of the gradient is left.

Divide the scores by sqrt(d), and they have variance 1 for every d (Vaswani et al., 2017). That is
all there is to "scaled".

The trap: the rule holds for vectors with components of variance 1. A layer that makes them larger
brings the problem back. Dividing by d fails in the other direction: all weights become equal.

New: the argument scale.
Try: d**-1 in place of d**-0.5. For 1024 components the largest weight falls to 0.02, one 64th.
"""

import importlib
import math

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.class_loss import softmax
from tinytorch.ops.creation import eye
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None
) -> Tensor:
    """softmax(query @ key^T * scale) @ value, with scale = 1 / sqrt(E) by default."""
    scale = 1 / math.sqrt(query.array.shape[-1]) if scale is None else scale
    scores = query @ key.mT * scale
    return softmax(scores, -1) @ value


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    def measure(d, scale):
        """Of random queries and 64 keys: the spread of the scores, the mean of the largest weights,
        and the median of how large the gradient of a query's scores is."""
        scores = (randn(200, d) @ randn(64, d).mT * scale).requires_grad_()
        # With the 64 unit vectors as keys, the scores of a query are its own components.
        y = scaled_dot_product_attention(scores, eye(64), randn(64, 8), scale=1.0)
        y.backward(randn(200, 8))
        largest = softmax(scores, -1).amax(-1).mean().item()
        return scores.std().item(), largest, scores.grad.norm(dim=-1).sort()[0][100].item()

    print("not scaled      spread  largest weight  gradient")
    # -> not scaled      spread  largest weight  gradient
    for d in (4, 64, 1024):
        spread, largest, grad = measure(d, 1.0)
        print(f"{d:4} components {spread:9.1f} {largest:15.2f} {grad:9.4f}")
    # ->    4 components       2.2            0.29    0.5491
    # ->   64 components       8.0            0.81    0.1906
    # -> 1024 components      31.6            0.95    0.0004
    print("scaled")  # -> scaled
    for d in (4, 64, 1024):
        spread, largest, grad = measure(d, d**-0.5)
        print(f"{d:4} components {spread:9.1f} {largest:15.2f} {grad:9.4f}")
    # ->    4 components       1.0            0.11    0.4620
    # ->   64 components       1.0            0.10    0.4570
    # -> 1024 components       1.0            0.11    0.4744

    # The default is the root of the size of the query.
    q, k, v = randn(3, 5, 16)
    same = scaled_dot_product_attention(q, k, v) - scaled_dot_product_attention(q, k, v, 0.25)
    print(same.abs().max().item())  # -> 0.0
