"""Step embedding05: max_norm: rows that stay short

The length of a row often says only how frequent its word is: each use moves the row a little
further. Such a word then drowns the others in every sum. In the demo one word is in every text and
the other in one of ten, and the row of the first becomes twice as long.

max_norm shortens the rows that are used, just before they are used:

    W[i] <- W[i] * max_norm / |W[i]|      where |W[i]| > max_norm

A row that is not used stays as it is, however long. norm_type says which norm: 2 by default.

The trap: this writes into the weight itself during forward, without a gradient. A value computed
from the weight before the call, and still waiting for its backward, is refused by step 66b's
check.

New: shorten_rows. Changed: embedding, Embedding.
Try: leave out no_grad() at shorten_rows, and use max_norm with a weight that learns.
"""

import importlib
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.padding import pad
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import arange, empty, full
from tinytorch.ops.gather import check_index
from tinytorch.ops.indexing import AddIndex
from tinytorch.ops.joining import cat
from tinytorch.ops.norm import norm
from tinytorch.ops.sorting import bincount, unique

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


@no_grad()
def shorten_rows(weight: Tensor, rows: Tensor, max_norm: float, norm_type: float) -> None:
    """Brings the chosen rows of `weight` back to max_norm, in place, where they are longer."""
    rows = unique(rows)
    chosen = weight[rows]
    lengths = norm(chosen, norm_type, 1, keepdim=True)
    # 1e-7, as in PyTorch, keeps a row of zeros from dividing by 0.
    weight[rows] = where(lengths > max_norm, chosen * (max_norm / (lengths + 1e-7)), chosen)


@checked
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """The rows of `weight` [n, d] at the indices `input` [...]: [..., d].

    Args:
        padding_idx: this row gets no gradient.
        max_norm: rows that are used and have a larger norm (of norm_type) are first shortened to
            it, in `weight` itself.
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
    if max_norm is not None:
        shorten_rows(weight, input, max_norm, norm_type)
    if scale_grad_by_freq:
        counts = (1 / bincount(input.flatten()).to(weight.dtype))[input]
    if padding_idx is not None:
        used = (input != padding_idx).to(weight.dtype)
        counts = used if counts is None else counts * used
    return PickRows.apply(weight, input, counts)


def bags_of(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> Tensor:
    """The places of each bag in the flat input: [bags, longest], filled up with the place behind
    the last one.

    Raises:
        ValueError: offsets with an input of two dimensions, or none with one dimension.
        RuntimeError: the offsets do not begin with 0, or end behind the input.
    """
    n, device = input.numel(), input.device
    if input.array.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None: each row is a bag")
        return arange(n, device=device).reshape(input.shape)
    if input.array.ndim != 1 or offsets is None or offsets.array.ndim != 1:
        raise ValueError("input has to be 2D, or 1D with offsets that are a 1D Tensor")
    if int(offsets[0]) != 0 or int(offsets[-1]) > n:
        raise RuntimeError(f"offsets have to start with 0 and to end by {n}: {offsets.tolist()}")
    limits = offsets if include_last_offset else cat([offsets, full((1,), n, device=device)])
    starts, ends = limits[:-1, None], limits[1:, None]
    longest = max((ends - starts).flatten().tolist(), default=0)
    # At least one column: over none there is no maximum.
    places = starts + arange(max(longest, 1), device=device)
    return where(places < ends, places, n)


@checked
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    include_last_offset: bool = False,
) -> Tensor:
    """The sum, mean or largest of the rows of `weight` [n, d] in each bag: [bags, d].

    Args:
        input: [bags, size], or [all] with `offsets` [bags], where each bag starts; with
            include_last_offset the end of the last bag follows.
    Raises:
        ValueError: shapes, mode or options do not fit together.
        RuntimeError, IndexError: as `embedding`.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    places, flat, n = bags_of(input, offsets, include_last_offset), input.flatten(), input.numel()
    rows = embedding(flat, weight)
    # Place n is a row that changes nothing.
    bags = pad(rows, (0, 0, 0, 1), value=float("-inf") if mode == "max" else 0.0)[places]
    sizes = (places < n).sum(1, keepdim=True)
    if mode == "max":
        return bags.max(1).values.masked_fill(sizes == 0, 0.0)
    return bags.sum(1) if mode == "sum" else bags.sum(1) / sizes.clamp(min=1).to(weight.dtype)


class Embedding(Module):
    """embedding as a module: the indices [...] of words become [..., embedding_dim]."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_row(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
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
        options = self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        return embedding(input, self.weight, *options)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.sgd import SGD

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    def lengths(**options):
        """Of both rows, after training: word 0 is in each text, word 1 in one of ten."""
        manual_seed(0)
        table = Embedding(2, 3, **options)
        optimizer, wanted = SGD(table.parameters(), lr=0.05), tensor([6.0, 0.0, 0.0])
        for step in range(100):
            loss = (table(tensor([0, 0 if step % 10 else 1])).mean(0) - wanted).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [round(length, 1) for length in table.weight.norm(dim=1).tolist()]

    print(lengths())  # -> [6.0, 3.2]
    # Shortened before each use; the last step of the training has made them a little longer.
    print(lengths(max_norm=1.0))  # -> [1.5, 1.2]

    # Long rows become short, if they are used: 0 and 1, but not 3.
    table = tensor([[3.0, 4.0], [0.6, 0.8], [0.0, 0.1], [30.0, 40.0]])
    short = Embedding(4, 2, max_norm=1.0)
    short.weight.data.copy_(table)
    print([[round(x, 3) for x in row] for row in short(tensor([0, 1])).tolist()])
    # -> [[0.6, 0.8], [0.6, 0.8]]
    print(short.weight.norm(dim=1).tolist()[3])  # -> 50.0

    # Another norm: the sum of the sizes.
    print([round(x, 3) for x in embedding(tensor([0]), table, None, 1.0, 1.0)[0].tolist()])
    # -> [0.429, 0.571]

    # The weight is written during forward. What was computed from it before is refused.
    before = (short.weight * short.weight).sum()
    short(tensor([3]))
    try:
        grad(before, short.weight)
    except RuntimeError as error:
        print(error)  # -> one of the variables needed for gradient computation ...
