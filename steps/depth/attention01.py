"""Step attention01: Attention: a soft dictionary

A recurrent network passes on all that it has read in one vector. What word 100 needs of word 1 has
to survive 99 updates. A Python dictionary forgets nothing: it keeps each value under a key, and
finds it when it is needed. But d[query] compares with ==, which has no derivative, so no training
can improve the keys.

Make it soft. Compare the query with every key by a dot product, turn these scores into weights that
are positive and add up to 1, and return the mean of the values with these weights:

    scores = Q K^T,   weights = the softmax of each row,   result = weights V
    [L, S]            [L, S]                               [L, V]

Each of L queries looks at S keys at once. The better a key fits, the more of its value comes back;
if one fits far better than the others, this is the dictionary again. Everything is differentiable,
so queries, keys and values can all be what a network computes. This is attention: first with scores
from a small network (Bahdanau et al., 2014), then with dot products (Luong et al., 2015).

The trap: the softmax runs over the keys, the last dimension. Over the queries the shapes are the
same, and nothing fails.

(PyTorch: torch.nn.functional.scaled_dot_product_attention. "Scaled" is the next step.)

New: scaled_dot_product_attention.
Try: softmax(scores, 0). The shapes stay; which line of the demo shows that it is wrong?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as gradients
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.class_loss import softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(query @ key^T) @ value: [L, E], [S, E] and [S, V] give [L, V]."""
    scores = query @ key.mT
    return softmax(scores, -1) @ value


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def show(weights, rows, columns):
        """Prints a map: the darker the sign, the more the row takes of the column."""
        print(" " * 6, *(f"{name:>5}" for name in columns))
        for name, row in zip(rows, weights.tolist(), strict=True):
            print(f"{name:>6}", *(f"{' .:-=+*#%@'[min(9, int(10 * w))] * 3:>5}" for w in row))

    # A dictionary with three entries. A key is a vector; these three point in different directions.
    names = ["red", "green", "blue"]
    key = tensor([[6.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 0.0, 6.0]], requires_grad=True)
    value = tensor([[10.0, 1.0], [20.0, 2.0], [30.0, 3.0]])

    # A query that equals a key finds its value. One in between finds the mean of the two.
    query = tensor([[0.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.5, 0.3]])
    found = scaled_dot_product_attention(query, key, value)
    for row in found.tolist():
        print([round(x, 1) for x in row])
    # -> [20.0, 2.0]
    # -> [15.0, 1.5]
    # -> [21.9, 2.2]
    show(softmax(query @ key.mT, -1), ["green", "r+g", "g, b"], names)
    # ->          red green  blue
    # ->  green         @@@
    # ->    r+g   ===   ===
    # ->   g, b         ###   :::
    print("rows add up to", [round(s, 5) for s in softmax(query @ key.mT, -1).sum(-1).tolist()])
    # -> rows add up to [1.0, 1.0, 1.0]

    # The result depends smoothly on the keys: they can learn. Ask for 30 where "g, b" gives 21.9.
    for _ in range(200):
        loss = (scaled_dot_product_attention(query, key, value)[2, 0] - 30).square()
        (grad,) = gradients(loss, [key])
        key.data -= 0.005 * grad
    print(f"{scaled_dot_product_attention(query, key, value)[2, 0].item():.1f}")  # -> 29.2
