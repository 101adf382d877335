"""Step embedding03: Embedding: a padding row that does not learn

Sentences have different lengths, and a tensor is a rectangle. So the short ones are filled up with
a word that means nothing, the padding. Its row should mean nothing, too: all zeros, so that a sum
over the words of a sentence is the sum of the real ones. If it is only set to zero at the start, it
does not stay zero: after one step of training it has moved, because it got a gradient at each place
that it fills.

So the gradient of each place gets a factor, how much it counts: 0 at the padding, 1 elsewhere.

    dL/dW[i_k] += counts_k * dL/dy_k

The same factor can do more. "the" occurs a hundred times as often as "zebra", and its row gets a
hundred gradients where the other gets one. With counts_k = 1 / (how often word i_k occurs in this
batch), each row gets the mean of its gradients.

The trap: only the gradient is 0. Forward takes the row as it is. If you load a table of your own,
set the row of the padding to zeros yourself.

PyTorch: padding_idx and scale_grad_by_freq.

Changed: PickRows and embedding weigh gradients. New: padding_row.
Try: fill the row of the padding with ones. It stays as it is, and every short sentence is wrong.
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
from tinytorch.ops.sorting import bincount

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class PickRows(Function):
    """y = the rows of W that `index` names;   dL/dW = zeros, with each gradient added to its row.

    `counts`, in the shape of index or None, says how much the gradient of each place counts.
    """

    saves = 1, 2

    def forward(ctx, weight: Any, index: Any, counts: Any) -> Any:
        ctx.shape = weight.shape
        ctx.save_for_backward(index, counts)
        return weight.take(index, axis=0)

    def backward(ctx, g: Any) -> tuple:
        index, counts = ctx.saved
        g = g if counts is None else g * counts[..., None]
        return ctx.call(AddIndex, g, ctx.shape, (0,), index), None, None

    def name(ctx) -> str:
        return "EmbeddingBackward0"


def padding_row(padding_idx: int | None, rows: int) -> int | None:
    """padding_idx, counted from the front. Raises AssertionError where there is no such row."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


@checked
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """The rows of `weight` [n, d] at the indices `input` [...]: [..., d].

    Args:
        padding_idx: this row gets no gradient.
        scale_grad_by_freq: divides the gradient of a row by how often the row is used.
    Raises:
        RuntimeError: `weight` does not have two dimensions, `input` does not hold integers.
        IndexError: there is no such row.
        AssertionError: padding_idx is not a row.
    """
    if weight.array.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, it has {weight.array.ndim} dimensions")
    check_index("embedding", input, len(weight), IndexError)
    padding_idx, counts = padding_row(padding_idx, len(weight)), None
    if scale_grad_by_freq:
        counts = (1 / bincount(input.flatten()).to(weight.dtype))[input]
    if padding_idx is not None:
        used = (input != padding_idx).to(weight.dtype)
        counts = used if counts is None else counts * used
    return PickRows.apply(weight, input, counts)


class Embedding(Module):
    """embedding as a module: the indices [...] of words become [..., embedding_dim]."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        scale_grad_by_freq: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_row(padding_idx, num_embeddings)
        self.scale_grad_by_freq = scale_grad_by_freq
        shape = (num_embeddings, embedding_dim)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws normal numbers; the row of the padding is 0."""
        self.weight.normal_()
        if self.padding_idx is not None:
            self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        return embedding(input, self.weight, self.padding_idx, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    # Three sentences of 3, 2 and 1 words, filled up with word 0.
    sentences = tensor([[1, 2, 3], [4, 2, 0], [2, 0, 0]])

    def train(layer):
        """One step of SGD that makes the sums of the sentences smaller."""
        layer(sentences).sum(1).square().sum().backward()
        layer.weight.data.sub_(0.1 * layer.weight.grad)
        return layer

    plain = Embedding(5, 2)
    plain.weight.data[0] = 0.0
    print("still 0 after a step:", bool((train(plain).weight[0] == 0).all()))
    # -> still 0 after a step: False
    padded = Embedding(5, 2, padding_idx=0)
    print("with padding_idx:", train(padded).weight[0].tolist())  # -> with padding_idx: [0.0, 0.0]
    print(padded, Embedding(5, 2, padding_idx=-1))
    # -> Embedding(5, 2, padding_idx=0) Embedding(5, 2, padding_idx=4)

    # The gradient of each row, when each place has the gradient 1.
    weight = randn(5, 2, requires_grad=True)
    for options in ({}, {"padding_idx": 0}, {"scale_grad_by_freq": True}):
        (g,) = grad(embedding(sentences, weight, **options).sum(), weight)
        print(options, [round(value, 3) for value in g[:, 0].tolist()])
    # -> {} [3.0, 1.0, 3.0, 1.0, 1.0]
    # -> {'padding_idx': 0} [0.0, 1.0, 3.0, 1.0, 1.0]
    # -> {'scale_grad_by_freq': True} [1.0, 1.0, 1.0, 1.0, 1.0]
    both = embedding(sentences, weight, 2, True)
    print([round(value, 3) for value in grad(both.sum(), weight)[0][:, 0].tolist()])
    # -> [1.0, 1.0, 0.0, 1.0, 1.0]
    try:
        Embedding(5, 2, padding_idx=5)
    except AssertionError as error:
        print(error)  # -> Padding_idx must be within num_embeddings
