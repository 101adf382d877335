"""Step rnn07: Packed in any order

Step rnn06 wants the longest text first, and a batch comes as it comes. So with enforce_sorted=False
the texts are sorted inside, and the packed sequence remembers how: sorted_indices says where its
text i came from, unsorted_indices where text i went.

    texts                  lengths 2 4 1        sorted_indices    1 0 2
    packed, longest first          4 2 1        unsorted_indices  1 0 2

pad_packed_sequence brings everything back into the old order. One permutation undoes the other:
argsort of a permutation is its inverse.

The trap is what else belongs to the texts. Labels stay in the old order, and so must the states
that go into a layer and come out of it: the layer of step rnn09 turns them by the same two indices.

PyTorch: the same four fields, also when it prints.

Changed: PackedSequence, pack_padded_sequence, pad_packed_sequence, pack_sequence. New:
invert_permutation.
Try: let invert_permutation return the permutation itself. The three texts of the demo still come
out right; the permutation of four numbers does not.
"""

import importlib
import warnings
from collections import namedtuple
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor, as_tensor
from tinytorch.nn.modules.dropout import dropout
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.rnn_cells import add_weights, draw_uniform
from tinytorch.nn.modules.rnn_loops import GruLoop, Loop, LstmLoop, ReluLoop, TanhLoop
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import arange, zeros
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.gather import index_select
from tinytorch.ops.joining import cat, constant_pad, stack
from tinytorch.ops.sorting import argsort, sort

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


LOOPS = {
    "RNN_TANH": (TanhLoop, 1),
    "RNN_RELU": (ReluLoop, 1),
    "LSTM": (LstmLoop, 4),
    "GRU": (GruLoop, 3),
}


def run_loop(loop: type[Loop], input: Tensor, *args: Any) -> list[Tensor]:
    """loop.apply; halves are computed as float32 and rounded once, at the end."""
    wide = opmath_type(input.dtype)
    if wide is input.dtype:
        return loop.apply(input, *args)
    args = [x.to(wide) if isinstance(x, Tensor) else x for x in (input, *args)]
    return [out.to(input.dtype) for out in loop.apply(*args)]


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: for layer k weight_ih_lk, weight_hh_lk, bias_ih_lk and
    bias_hh_lk, and for the direction from the end to the start the same with _reverse.

    Args:
        num_layers: the outputs of a layer are the inputs of the next one.
        batch_first: input and output are [batch, time, size], else [time, batch, size].
        dropout: between the layers, in training.
        bidirectional: a second pass from the end to the start; the outputs stand side by side.
        proj_size: not supported: 0.
    Raises:
        ValueError, TypeError: an argument is not possible.
        NotImplementedError: proj_size is not 0.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1]")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout is between layers: it does nothing with num_layers=1", stacklevel=3
            )
        flags, sizes = (bias, batch_first), (input_size, hidden_size, num_layers)
        if any(not isinstance(f, bool) for f in flags) or any(
            not isinstance(n, int) for n in sizes
        ):
            raise TypeError(f"bias and batch_first are bools, sizes are ints, not {flags}, {sizes}")
        if min(sizes) <= 0:
            raise ValueError(f"input_size, hidden_size and num_layers must be positive: {sizes}")
        if proj_size:
            raise NotImplementedError("proj_size is not supported: put a Linear behind the layer")
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, 0
        self._all_weights = []
        for layer in range(num_layers):
            size = hidden_size * (1 + bidirectional) if layer else input_size
            for end in ("", "_reverse")[: 1 + bidirectional]:
                names, shape = f"{{}}_l{layer}{end}", (size, hidden_size)
                names = add_weights(self, names, LOOPS[mode][1], shape, bias, device, dtype)
                self._all_weights.append(names if bias else names[:2])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
        draw_uniform(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Does nothing: PyTorch puts the parameters side by side for cuDNN here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all parameters, which some programs read to initialise a layer."""
        return [name for names in self._all_weights for name in names]

    def _run(self, data: Tensor, rows: list[slice], states: Sequence[Tensor]) -> tuple:
        """(outputs [all, ...] of the last layer, last states) of all layers and directions."""
        last, weights = [], self.all_weights
        directions = 1 + self.bidirectional
        for number in range(0, len(weights), directions):
            if number and self.dropout:
                data = dropout(data, self.dropout, self.training)
            outs = []
            for k in range(number, number + directions):
                order = rows if k == number else rows[::-1]
                given = (*weights[k], None, None)[:4]
                out, *ends = run_loop(
                    LOOPS[self.mode][0], data, *given, order, *(s[k] for s in states)
                )
                outs.append(out)
                last.append(ends)
            data = outs[0] if directions == 1 else cat(outs, 1)
        return data, [stack(parts) for parts in zip(*last, strict=True)]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        """(output, last state) for a sequence and the state before it, zeros by default.

        Args:
            input: [time, batch, input_size]; [batch, time, input_size] with batch_first;
                or [time, input_size].
            hx: [layers * directions, batch, hidden_size], without batch if the input has none; of
                an LSTM a pair (h, c). The last state has the same form.

        `output` [time, batch, directions * hidden_size] is h of the last layer after each step.
        Raises:
            RuntimeError, ValueError: shapes or types do not fit.
        """
        states = None if hx is None else list(hx) if self.mode == "LSTM" else [hx]
        data = input
        ndim = data.array.ndim
        if ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {ndim}D")
        if states is not None and any(s.array.ndim != ndim for s in states):
            raise RuntimeError(f"For {ndim}-D input, hx should also be {ndim}-D")
        if ndim == 2:
            data = data.unsqueeze(1)
            states = None if states is None else [s.unsqueeze(1) for s in states]
        elif self.batch_first:
            data = data.transpose(0, 1)
        sizes = [data.array.shape[1]] * data.array.shape[0]
        data = data.flatten(0, 1)
        self._check_input(data)
        if not sizes:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        shape = (len(self._all_weights), sizes[0], self.hidden_size)
        if states is None:
            start = zeros(shape, dtype=data.dtype, device=data.device)
            states = [start, start] if self.mode == "LSTM" else [start]
        elif any(s.shape != shape or s.dtype is not data.dtype for s in states):
            found = [f"{list(s.shape)} of {s.dtype}" for s in states]
            raise RuntimeError(f"Expected hidden size {shape} of {data.dtype}, got {found}")
        # The rows of each time step follow those of the steps before it.
        ends = list(accumulate(sizes))
        rows = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
        out, last = self._run(data, rows, states)
        if ndim == 2:
            last = [s.squeeze(1) for s in last]
        else:
            out = out.reshape(len(sizes), sizes[0], out.array.shape[1])
            out = out.transpose(0, 1) if self.batch_first else out
        return out, tuple(last) if self.mode == "LSTM" else last[0]

    def _check_input(self, data: Tensor) -> None:
        """Raises ValueError for another type than that of the weights, RuntimeError for another
        shape than [all, input_size]."""
        weight = self.weight_ih_l0
        if data.dtype is not weight.dtype:
            raise ValueError(
                f"RNN input dtype ({data.dtype}) does not match weight ({weight.dtype})"
            )
        if data.array.ndim != 2 or data.array.shape[1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{list(data.shape)}"
            )

    def extra_repr(self) -> str:
        usual = dict(num_layers=1, bias=True, batch_first=False, dropout=0, bidirectional=False)
        shown = [f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return f"{self.input_size}, {self.hidden_size}" + "".join(shown)


class RNN(RNNBase):
    """A simple recurrent network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    def __init__(
        self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **options
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, *args, **options)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory: see lstm_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("LSTM", *args, **options)


class GRU(RNNBase):
    """Gated recurrent units: see gru_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("GRU", *args, **options)


FIELDS = ["data", "batch_sizes", "sorted_indices", "unsorted_indices"]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one."""
    return None if permutation is None else argsort(permutation)


class PackedSequence(namedtuple("PackedSequence", FIELDS)):
    """Sequences of different lengths, time step by time step, without padding.

        data            the first elements of all sequences, then the second ones, ...: [all, ...]
        batch_sizes     how many sequences have so many elements, on the CPU: [longest]
        sorted_indices  where the sequences, the longest first, came from; None if they were sorted
        unsorted_indices  the inverse

    The functions here make them. `abc` and `x` packed are `axbc` with the batch sizes 2, 1, 1.
    """

    def __new__(cls, data: Any, batch_sizes: Any, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)


def places_of(batch_sizes: Tensor, device: Any) -> Tensor:
    """Where the elements of a packed sequence are in a padded one, [time, batch], made flat."""
    inside = arange(int(batch_sizes[0])) < batch_sizes[:, None]
    return inside.flatten().nonzero().flatten().to(device)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch [time, batch, ...], or [batch, time, ...] with batch_first.

    Args:
        lengths: of each sequence: a list, or a tensor on the CPU.
        enforce_sorted: the sequences come with the longest first. With False they are sorted here,
            and `pad_packed_sequence` brings them back into their order.
    Raises:
        RuntimeError: the lengths are not sorted, below 1, too large, or not one for each sequence.
    """
    lengths, order = as_tensor(lengths).long(), None
    input = input.transpose(0, 1) if batch_first else input
    time, batch = input.array.shape[:2]
    if lengths.device is not cpu or lengths.array.shape != (batch,):
        raise RuntimeError(f"lengths has to be a 1D tensor on the CPU with {batch} elements")
    if not enforce_sorted:
        lengths, order = sort(lengths, descending=True)
        order = order.to(input.device)
        input = index_select(input, 1, order)
    sizes = lengths.tolist()
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True"
        )
    if not sizes or sizes[-1] < 1 or sizes[0] > time:
        raise RuntimeError(f"lengths have to be between 1 and {time}, but got {sizes}")
    batch_sizes = (arange(sizes[0])[:, None] < lengths).sum(1)
    rows = input[: sizes[0]].flatten(0, 1)
    return PackedSequence(
        index_select(rows, 0, places_of(batch_sizes, input.device)), batch_sizes, order
    )


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(the sequences as one tensor [time, batch, ...], filled up with padding_value; the lengths),
    in the order from before the packing.
    """
    data, batch_sizes, _, back = sequence
    time, batch = len(batch_sizes), int(batch_sizes[0])
    padded = data.new_full((time * batch, *data.shape[1:]), padding_value)
    padded[places_of(batch_sizes, data.device)] = data
    padded = padded.reshape(time, batch, *data.shape[1:])
    lengths = (arange(batch) < batch_sizes[:, None]).sum(0)
    if back is not None:
        padded, lengths = index_select(padded, 1, back), lengths[back.cpu()]
    return padded.transpose(0, 1) if batch_first else padded, lengths


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences [length, ...] as one tensor [longest, batch, ...], filled up with padding_value.

    Raises:
        RuntimeError: there are no sequences, or the side is not "left" or "right".
    """
    if not isinstance(sequences, Iterable) or not (sequences := list(sequences)):
        raise RuntimeError("pad_sequence: expected an iterable with at least one tensor")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    longest, padded = max(map(len, sequences)), []
    for sequence in sequences:
        both = (0, longest - len(sequence))
        both = both if padding_side == "right" else both[::-1]
        others = (0, 0) * (sequence.array.ndim - 1)
        padded.append(constant_pad(sequence, (*others, *both), padding_value))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch, each with its own length: the inverse of pad_sequence."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Iterable[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences [length, ...]; see pack_padded_sequence."""
    sequences = list(sequences)
    lengths = [len(sequence) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences, each with its own length: the inverse of pack_sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), True)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    texts = [tensor([5, 6]), tensor([1, 2, 3, 4]), tensor([7])]
    try:
        pack_sequence(texts)
    except RuntimeError as error:
        print(error)
    # -> `lengths` array must be sorted in decreasing order when `enforce_sorted` is True
    packed = pack_sequence(texts, enforce_sorted=False)
    print(
        packed.data.tolist(), packed.sorted_indices.tolist()
    )  # -> [1, 5, 7, 2, 6, 3, 4] [1, 0, 2]
    print([text.tolist() for text in unpack_sequence(packed)])  # -> [[5, 6], [1, 2, 3, 4], [7]]
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    print(padded.shape, lengths.tolist())  # -> tinytorch.Size([3, 4]) [2, 4, 1]

    order = tensor([2, 0, 3, 1])
    print(invert_permutation(order).tolist(), order[invert_permutation(order)].tolist())
    # -> [1, 3, 0, 2] [0, 1, 2, 3]
    print(invert_permutation(pack_sequence(texts[1:]).sorted_indices))  # -> None
