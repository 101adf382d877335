"""Step checkpoint01: What the graph of a network keeps

Step 84a walked a graph and added up what its nodes have saved: each array once, and parameters not
at all. The demo does it with finished modules, for a network of three blocks. Its weights take 1.5
MB, and the graph keeps 12 MB. The largest part belongs to GELU, which keeps its input and a factor
of its derivative; the second product of a block keeps nothing of its own, since its input is the
result that tanh keeps already. What the graph keeps grows with the batch, the weights do not.

New: nothing in the framework.
Try: double the batch. Which of the numbers double?
"""

import importlib

from tinytorch.autograd.graph import graph_functions
from tinytorch.nn.activation import GELU, Tanh
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul norm reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    manual_seed(0)
    blocks = [Sequential(Linear(256, 256), Tanh(), Linear(256, 256), GELU()) for _ in range(3)]
    model = Sequential(*blocks)
    batch = 1024
    scores = model(randn(batch, 256))

    def storage(array):
        """The array that owns the memory."""
        return array if array.base is None else storage(array.base)

    def kept_by_node(y, without=()):
        """{node: bytes of the arrays that it keeps and no earlier node does}"""
        seen = {id(storage(tensor.array)) for tensor in without}
        kept = {}
        for node in graph_functions(y):
            arrays = [storage(value) for value in node.saved_arrays() if hasattr(value, "nbytes")]
            new = {id(array): array.nbytes for array in arrays if id(array) not in seen}
            seen |= new.keys()
            kept[node] = sum(new.values())
        return kept

    kept = kept_by_node(scores, without=model.parameters())
    for node, size in kept.items():
        print(f"{node.name():17} {size / 2**20:.0f} MB {'*' * (4 * size >> 20)}")
    # -> AddmmBackward0    1 MB ****
    # -> TanhBackward0     1 MB ****
    # -> AddmmBackward0    0 MB
    # -> GeluBackward0     2 MB ********
    # -> AddmmBackward0    1 MB ****
    # -> TanhBackward0     1 MB ****
    # -> AddmmBackward0    0 MB
    # -> GeluBackward0     2 MB ********
    # -> AddmmBackward0    1 MB ****
    # -> TanhBackward0     1 MB ****
    # -> AddmmBackward0    0 MB
    # -> GeluBackward0     2 MB ********

    weights = sum(p.numel() * 4 for p in model.parameters())
    print(f"weights {weights / 2**20:.1f} MB, kept {sum(kept.values()) / 2**20:.1f} MB")
    # -> weights 1.5 MB, kept 12.0 MB

    # Shared arrays would be counted twice, and parameters as well.
    every = [a for node in kept for a in node.saved_arrays() if hasattr(a, "nbytes")]
    print(f"{sum(array.nbytes for array in every) / 2**20:.1f} MB")  # -> 16.5 MB

    # backward frees node by node, so the peak is at its beginning.
    scores.sum().backward()
    try:
        kept_by_node(scores)
    except RuntimeError as error:
        print(str(error)[:50])  # -> Trying to backward through the graph a second time
