"""Step 84a: What a graph keeps

Why does training need several times the memory of using a network? Each node of the graph saves
what its formula needs, until backward has used it:

    y = x @ w         dx = g @ w.T, dw = x.T @ g      keeps x and w
    y = tanh(x)       dx = g * (1 - y * y)            keeps y
    y = x + b         dx = db = g                     keeps nothing

So it can be counted: walk along the edges, and add up the bytes of the saved arrays. Two things
would make the sum wrong. An array that two nodes share counts once: the y of tanh is the x of the
next product. And parameters would be there without a graph. Views share the memory of their base
(step 67a), so the base is counted.

The demo's network has three equal blocks. GELU keeps its input and a factor of its derivative. The
second product of a block keeps nothing of its own, for its input is what tanh keeps already.

The peak is at the beginning of backward, which frees node by node (step 65a).

PyTorch: torch.autograd.graph.saved_tensors_hooks shows each tensor that is saved.

New: storage_of, kept_by_node.
Try: double the batch. Which of the numbers double?
"""

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.graph import graph_functions
from tinytorch.nn.modules.activation import GELU, Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn


def storage_of(array):
    """The array that owns the memory."""
    return array if array.base is None else storage_of(array.base)


def kept_by_node(y, without=()):
    """{node: bytes of the arrays that it keeps, and no earlier node}, the oldest node first.

    without: tensors whose memory does not count, such as parameters.
    """
    seen = {id(storage_of(tensor.array)) for tensor in without}
    kept = {}
    for node in graph_functions(y):  # all nodes behind y
        kept[node] = 0
        for value in node.saved_arrays():
            if hasattr(value, "nbytes"):  # a formula may keep a number, too
                array = storage_of(value)
                kept[node] += 0 if id(array) in seen else array.nbytes
                seen.add(id(array))
    return kept


if __name__ == "__main__":
    manual_seed(0)
    blocks = [Sequential(Linear(256, 256), Tanh(), Linear(256, 256), GELU()) for _ in range(3)]
    model = Sequential(*blocks)
    scores = model(randn(1024, 256))

    kept = kept_by_node(scores, without=model.parameters())
    for node, size in [*kept.items()][:4]:  # of the first block
        print(f"{node.name():15} {size / 2**20:.0f} MB {'*' * (size >> 18)}")
    # -> AddmmBackward0  1 MB ****
    # -> TanhBackward0   1 MB ****
    # -> AddmmBackward0  0 MB
    # -> GeluBackward0   2 MB ********

    weights = sum(p.nbytes for p in model.parameters())
    print(f"weights {weights / 2**20:.1f} MB, kept {sum(kept.values()) / 2**20:.1f} MB")
    # -> weights 1.5 MB, kept 12.0 MB
    every = [a for node in kept for a in node.saved_arrays() if hasattr(a, "nbytes")]
    print(f"counted twice, and with weights: {sum(a.nbytes for a in every) / 2**20:.1f} MB")
    # -> counted twice, and with weights: 16.5 MB
