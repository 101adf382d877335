"""Step embedding02: Embedding in the package's dress: rows are picked

With 5,000 words, 4,999 of 5,000 products of step embedding01 are with 0. Step 55b picked the rows,
by an index. Here this is a node of its own, with a check: words are numbers from 0 on. Python's -1
for the last one is refused, as in PyTorch: a negative word is a mistake, often a padding that was
meant to be ignored (the next step).

    forward     y_k = W[i_k]
    backward    dL/dW = 0, then dL/dW[i_k] += dL/dy_k for each place k

The trap is the +=. NumPy's `gradient[rows] += g` reads all rows first, adds, and writes: if a row
occurs twice, one of its gradients is lost, without an error. AddIndex (step indexing05) adds all of
them up, and is a Function, so the gradient can be differentiated again.

PyTorch: nn.Embedding, with its numbers drawn from a normal distribution. Its node prints as
EmbeddingBackward0.

`saves = (1,)` declares that argument 1, the index, is kept (step node02).

Changed: embedding picks. New: PickRows, Embedding.
Try: leave out check_index, and ask for word -1: you get the last word, and no error.
"""

import importlib
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.gather import check_index
from tinytorch.ops.indexing import AddIndex

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class PickRows(Function):
    """y = the rows of W that `index` names;   dL/dW = 0, with each gradient added to its row."""

    saves = (1,)

    def forward(ctx, weight: Any, index: Any) -> Any:
        ctx.shape = weight.shape
        ctx.save_for_backward(index)
        return weight.take(index, axis=0)

    def backward(ctx, g: Any) -> tuple:
        return ctx.call(AddIndex, g, ctx.shape, (0,), *ctx.saved), None

    def name(ctx) -> str:
        return "EmbeddingBackward0"


@checked
def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """The rows of `weight` [n, d] at the indices `input` [...]: [..., d].

    Raises:
        RuntimeError: `weight` does not have two dimensions, `input` does not hold integers.
        IndexError: there is no such row.
    """
    if weight.array.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, it has {weight.array.ndim} dimensions")
    check_index("embedding", input, len(weight), IndexError)
    return PickRows.apply(weight, input)


class Embedding(Module):
    """embedding as a module: the indices [...] of words become [..., embedding_dim]."""

    def __init__(self, num_embeddings: int, embedding_dim: int, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        shape = (num_embeddings, embedding_dim)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws normal numbers."""
        self.weight.normal_()

    def forward(self, input: Tensor) -> Tensor:
        return embedding(input, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


if __name__ == "__main__":
    import timeit

    from tinytorch.core.tensor import tensor
    from tinytorch.nn.nll import one_hot
    from tinytorch.ops.random import manual_seed, randint, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    weight = randn(5000, 64)
    text = randint(0, 5000, (500,))

    def product():
        return one_hot(text, 5000).to(weight.dtype) @ weight

    print("the same rows:", bool((product() == embedding(text, weight)).all()))
    # -> the same rows: True
    seconds = [
        min(timeit.repeat(f, number=1, repeat=3))
        for f in (product, lambda: embedding(text, weight))
    ]
    print(f"picking is {seconds[0] / seconds[1]:.0f} times as fast")  # -> ...
    print("more than 20 times:", seconds[0] > 20 * seconds[1])  # -> more than 20 times: True

    # A row that is used twice gets both gradients.
    layer = Embedding(4, 3)
    words = tensor([3, 0, 2, 3, 1])
    layer(words).sum().backward()
    print(layer.weight.grad[:, 0].tolist())  # -> [1.0, 1.0, 1.0, 2.0]
    wrong = layer.weight.grad.array * 0
    wrong[words.array] += 1
    print("with gradient[rows] += g:", wrong[:, 0].tolist())
    # -> with gradient[rows] += g: [1.0, 1.0, 1.0, 1.0]

    print(layer, layer(words).grad_fn.name())  # -> Embedding(4, 3) EmbeddingBackward0
    print(
        f"normal numbers: {Embedding(100, 100).weight.std().item():.1f}"
    )  # -> normal numbers: 1.0
    for mistake in (
        lambda: layer(tensor([4])),
        lambda: layer(tensor([-1])),
        lambda: embedding(words, words),
    ):
        try:
            mistake()
        except (IndexError, RuntimeError) as error:
            print(type(error).__name__, error)
    # -> IndexError embedding(): an index is out of bounds for a dimension of size 4
    # -> IndexError embedding(): an index is out of bounds for a dimension of size 4
    # -> RuntimeError 'weight' must be 2-D, it has 1 dimensions
