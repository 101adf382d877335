"""Step embedding07: Weights and padding in a bag of words

Two things are missing in the bags of step embedding04. Words that are in every text say little, and
should count less. And texts that come as a matrix are filled up with a padding word, which counts
in the mean like any other: the demo's first text has two words and two paddings.

A weight for each word: with per_sample_weights w the bag is

    sum_k w_k W[i_k]                    dL/dw_k = dL/dbag . W[i_k]

and w can have a gradient, too. A weighted mean or maximum could mean several things. PyTorch
refuses them, and so does this function.

A padding: the words with index padding_idx neither count in a mean nor get a gradient. This takes
one line, because there is a place that changes nothing already: they are sent there.

The trap: in a mean, the padding has to be left out of the number of words as well, not only of the
sum. `sizes` counts the places below n, and those of the padding are n by then.

Changed: embedding_bag.
Try: leave out the line with masked_fill. The padding then counts in the mean.
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
    sparse: bool = False,
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
        NotImplementedError: sparse=True.
    """
    if sparse:
        raise NotImplementedError("sparse gradients are not supported: use sparse=False")
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
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or largest of the rows of `weight` [n, d] in each bag: [bags, d].

    Args:
        input: [bags, size], or [all] with `offsets` [bags], where each bag starts; with
            include_last_offset the end of the last bag follows.
        per_sample_weights: factors for the rows, in the shape of `input`; with mode "sum" only.
        padding_idx: this index does not count. An empty bag gives zeros.
        max_norm, norm_type: as in `embedding`.
    Raises:
        ValueError: shapes, mode or options do not fit together.
        NotImplementedError: weights with a mean or a maximum; scale_grad_by_freq; sparse=True.
        RuntimeError, IndexError, AssertionError: as `embedding`.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if scale_grad_by_freq:
        error = ValueError if mode == "max" else NotImplementedError
        raise error(f"mode {mode} does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError("per_sample_weights must have the same shape as the input")
    places, flat, n = bags_of(input, offsets, include_last_offset), input.flatten(), input.numel()
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("per_sample_weights are only supported for mode='sum'")
    rows = embedding(flat, weight, padding_idx, max_norm, norm_type, sparse=sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if padding_idx is not None:
        padding = pad(flat == padding_row(padding_idx, len(weight)), (0, 1))
        places = places.masked_fill(padding[places], n)
    # Place n is a row that changes nothing.
    bags = pad(rows, (0, 0, 0, 1), value=float("-inf") if mode == "max" else 0.0)[places]
    sizes = (places < n).sum(1, keepdim=True)
    if mode == "max":
        return bags.max(1).values.masked_fill(sizes == 0, 0.0)
    return bags.sum(1) if mode == "sum" else bags.sum(1) / sizes.clamp(min=1).to(weight.dtype)


class Table(Module):
    """What Embedding and EmbeddingBag have in common: `weight` [num_embeddings, embedding_dim]."""

    shown: dict[str, Any]  # the options of the function, and the values that repr leaves out

    def _make(
        self, shape: tuple[int, int], weight: Tensor | None, device, dtype, **options
    ) -> None:
        """Takes the options as attributes, and `weight` as the table, or draws one."""
        self.num_embeddings, self.embedding_dim = shape
        options["padding_idx"] = padding_row(options["padding_idx"], shape[0])
        self.__dict__.update(options)
        given = weight is not None
        self.weight = Parameter(weight if given else empty(shape, device=device, dtype=dtype))
        if self.weight.shape != shape:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        if not given:
            self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws normal numbers; the row of the padding is 0."""
        self.weight.normal_()
        if self.padding_idx is not None:
            self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, *args, **options) -> "Table":
        """A module with the table `embeddings` [n, d], which learns only with freeze=False. Further
        arguments are those of the module, after its sizes."""
        if embeddings.array.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        module = cls(*embeddings.shape, *args, _weight=embeddings, **options)
        module.weight.requires_grad_(not freeze)
        return module

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.shown}

    def extra_repr(self) -> str:
        shown = [f", {k}={v!r}" for k, v in self._options().items() if v != self.shown[k]]
        return f"{self.num_embeddings}, {self.embedding_dim}" + "".join(shown)


class Embedding(Table):
    """embedding as a module: the indices [...] of words become [..., embedding_dim]."""

    shown = dict(
        padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        named = dict(zip(self.shown, options, strict=True))
        self._make((num_embeddings, embedding_dim), _weight, device, dtype, **named)
        self.weight.requires_grad_(not _freeze)

    def forward(self, input: Tensor) -> Tensor:
        return embedding(input, self.weight, **self._options())


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    table = tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]], requires_grad=True)
    words, offsets = tensor([0, 3, 3, 2]), tensor([0, 2])

    factors = tensor([1.0, 0.5, -1.0, 1.0], requires_grad=True)
    summed = embedding_bag(words, table, offsets, mode="sum", per_sample_weights=factors)
    print(summed.tolist())  # -> [[3.0, 30.0], [-1.0, -10.0]]
    summed.sum().backward()
    print(factors.grad.tolist())  # -> [11.0, 44.0, 44.0, 33.0]

    # Word 3 is the padding: it counts in the mean, or it does not.
    texts = tensor([[0, 1, 3, 3], [2, 3, 3, 3]])
    print(embedding_bag(texts, table)[:, 0].tolist())  # -> [2.75, 3.75]
    table.grad = None
    bags = embedding_bag(texts, table, padding_idx=3)
    print(bags[:, 0].tolist())  # -> [1.5, 3.0]
    bags.sum().backward()
    print(table.grad[:, 0].tolist())  # -> [0.5, 0.5, 1.0, 0.0]

    mistakes = {
        "weights": lambda: embedding_bag(words, table, offsets, per_sample_weights=factors),
        "shape": lambda: embedding_bag(words, table, offsets, per_sample_weights=factors[:2]),
        "frequency": lambda: embedding_bag(words, table, offsets, scale_grad_by_freq=True),
        "frequency, max": lambda: embedding_bag(
            words, table, offsets, mode="max", scale_grad_by_freq=True
        ),
    }
    for name, mistake in mistakes.items():
        try:
            mistake()
        except (NotImplementedError, ValueError) as error:
            print(f"{name}: {type(error).__name__}")
    # -> weights: NotImplementedError
    # -> shape: ValueError
    # -> frequency: NotImplementedError
    # -> frequency, max: ValueError
