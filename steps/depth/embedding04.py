"""Step embedding04: Bags of words

Is a review good or bad? Often the words alone tell, whatever their order: the sum or the mean of
their rows is a vector for the whole text, a bag of words. Padded sentences (step embedding03) are
one way to have several texts in a batch. The padding still costs time, and in a mean it counts as a
word: the mean of one word and three paddings is a quarter of the word.

So all texts come in one row, one behind the other, and `offsets` says where each one starts:

    words     3 1 4 1 5 9 2 6
    offsets   0     3 3              bags: 3 1 4 | (empty) | 1 5 9 2 6

Inside, bags_of gives each bag the places of its words, all bags as wide as the longest, filled up
with one place behind the last word. The row at that place changes nothing: 0 for a sum, -inf for a
maximum. A mean divides by the real number of words. One formula then serves all three, and the
gradient comes from the operations that are already there.

The trap is the empty bag: its mean would be 0 / 0 and its maximum -inf. Both are 0, as in PyTorch.

New: bags_of, embedding_bag. PyTorch: nn.functional.embedding_bag, with the same offsets.
Try: fill up with 0 for a maximum, too, and look at a bag in which all numbers are negative.
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

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    weight = tensor([[float(i), -i] for i in range(10)], requires_grad=True)
    words, offsets = tensor([3, 1, 4, 1, 5, 9, 2, 6]), tensor([0, 3, 3])

    # Padded with word 0, the mean of [3] and three paddings is not that of [3].
    print(embedding(tensor([[3, 0, 0, 0]]), weight).mean(1).tolist())  # -> [[0.75, -0.75]]

    print(bags_of(words, offsets, False))
    # -> tensor([[0, 1, 2, 8, 8],
    # ->         [8, 8, 8, 8, 8],
    # ->         [3, 4, 5, 6, 7]])
    for mode in ("sum", "mean", "max"):
        print(
            mode,
            [
                [round(x, 2) for x in row]
                for row in embedding_bag(words, weight, offsets, mode).tolist()
            ],
        )
    # -> sum [[8.0, -8.0], [0.0, 0.0], [23.0, -23.0]]
    # -> mean [[2.67, -2.67], [0.0, 0.0], [4.6, -4.6]]
    # -> max [[4.0, -1.0], [0.0, 0.0], [9.0, -1.0]]

    # The end may be given as well; bags of one size come as a matrix.
    ends = tensor([0, 3, 3, 8])
    same = embedding_bag(words, weight, ends, "sum", True)[2].tolist()
    print(same, embedding_bag(words.reshape(2, 4), weight, mode="sum")[:, 0].tolist())
    # -> [23.0, -23.0] [9.0, 22.0]
    print(embedding_bag(words[:0], weight, tensor([0]), "max").tolist())  # -> [[0.0, 0.0]]

    # Each word of a mean gets its share of the gradient; of a maximum, one word gets it all.
    for mode in ("mean", "max"):
        (g,) = grad(embedding_bag(words, weight, offsets, mode).sum(0)[0], weight)
        print(mode, [round(value, 2) for value in g[:, 0].tolist()])
    # -> mean [0.0, 0.53, 0.2, 0.33, 0.33, 0.2, 0.2, 0.0, 0.0, 0.2]
    # -> max [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]

    mistakes = {
        "mode": lambda: embedding_bag(words, weight, offsets, "min"),
        "no offsets": lambda: embedding_bag(words, weight),
        "both": lambda: embedding_bag(words.reshape(2, 4), weight, offsets),
        "start": lambda: embedding_bag(words, weight, tensor([1, 3])),
    }
    for name, mistake in mistakes.items():
        try:
            mistake()
        except (ValueError, RuntimeError) as error:
            print(f"{name}: {error}")
    # -> mode: mode has to be one of sum, mean or max
    # -> no offsets: input has to be 2D, or 1D with offsets that are a 1D Tensor
    # -> both: if input is 2D, then offsets has to be None: each row is a bag
    # -> start: offsets have to start with 0 and to end by 8: [1, 3]
