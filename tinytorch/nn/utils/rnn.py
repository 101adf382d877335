"""Sequences of different lengths: padded to one length, or packed without the padding."""

from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.core.device import cpu
from tinytorch.core.dtype import float16, float32, float64, int64
from tinytorch.core.tensor import Tensor, as_tensor
from tinytorch.ops.creation import arange
from tinytorch.ops.gather import index_select
from tinytorch.ops.joining import constant_pad, stack
from tinytorch.ops.sorting import argsort, sort

FIELDS = ["data", "batch_sizes", "sorted_indices", "unsorted_indices"]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one."""
    return None if permutation is None else argsort(permutation)


def converter(*args: Any) -> Callable[["PackedSequence"], "PackedSequence"]:
    """The method that brings a packed sequence to a type or a device, such as packed.double()."""
    return lambda self: self.to(*args)


class PackedSequence(namedtuple("PackedSequence", FIELDS)):
    """Sequences of different lengths, time step by time step, without padding.

        data            the first elements of all sequences, then the second ones, ...: [all, ...]
        batch_sizes     how many sequences have so many elements, on the CPU: [longest]
        sorted_indices  where the sequences, the longest first, came from; None if they were sorted
        unsorted_indices  the inverse

    The functions here make them. `abc` and `x` packed are `axbc` with the batch sizes 2, 1, 1.
    Raises:
        ValueError: batch_sizes are not on the CPU.
    """

    def __new__(cls, data: Any, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            data, batch_sizes = data
        if batch_sizes.device is not cpu:
            raise ValueError("batch_sizes should always be on CPU")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """The same sequences on another device or of another type: the arguments of Tensor.to."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        orders = [None if order is None else order.to(data.device) for order in self[2:]]
        return type(self)(data, self.batch_sizes, *orders)

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    long = converter(int64)
    cpu = converter("cpu")

    def cuda(self, device: Any = None) -> "PackedSequence":
        return self.to("cuda" if device is None else device)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


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
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(the sequences as one tensor [time, batch, ...], filled up with padding_value; the lengths),
    in the order from before the packing.

    Raises:
        ValueError: total_length is less than the longest sequence has.
    """
    data, batch_sizes, _, back = sequence
    time, batch = len(batch_sizes), int(batch_sizes[0])
    if total_length is not None and total_length < time:
        raise ValueError(f"total_length is {total_length}, but the longest sequence has {time}")
    time = time if total_length is None else total_length
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
