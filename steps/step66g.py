"""Step 66g: Storage, stride and offset

Step 61g made views that cost nothing, and left it to NumPy how. Memory has one dimension. A tensor
of any shape is a flat row of numbers, the storage, and three small things that say how to read it:
shape, stride and offset. The stride of a dimension is the number of places to move in the storage
when its index goes up by one:

    place of t[i, j] = offset + i * stride[0] + j * stride[1]

In a new tensor the last dimension has stride 1, and each other one the product of all sizes after
it: shape [4, 8] has stride (8, 1). That is row order. (In column order the first dimension has
stride 1: (1, 4).)

A lot can be done without touching a number. A transpose exchanges two entries of shape and stride.
A slice begins at another offset; taking every second element doubles a stride. Broadcasting is
stride 0: the index goes up, the place stays the same. Each of these is a view: a new shape, stride
and offset on the same storage. So views cost nothing, and what is written to one shows in all.

What a view gives up is order. A transposed tensor no longer lies in memory row by row: it is not
contiguous. contiguous() copies it into row order, but only if it has to; clone() always copies.
(Trap: a view of three numbers can keep a storage of millions alive.)

Order costs time, too. The processor fetches memory in cache lines of 64 bytes, or 16 floats, and
guesses which line comes next. Along a row it uses all of each line; down a column, only 4 bytes of
each. The demo adds up the same array both ways.

The second half of the step finds the same four things in the real Tensor. Under it lies a NumPy
array, which counts its strides in bytes; PyTorch and we count elements.

Changed: nothing. New: StridedArray, in plain Python; Tensor.storage, untyped_storage,
storage_offset, narrow and data_ptr.
Try: let is_contiguous compare with column order, `row_order(self.shape[::-1])[::-1]`, and see what
contiguous() then gives.
"""

import math
import operator
from typing import Any

from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.parts import Slice, key_along


def row_order(shape):
    """The strides of a tensor whose elements lie in memory as one reads them."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


class StridedArray:
    """A tensor in plain Python: a list of numbers, and how to read it."""

    def __init__(self, storage, shape, stride=None, offset=0):
        self.storage = storage
        self.shape = tuple(shape)
        self.stride = row_order(self.shape) if stride is None else tuple(stride)
        self.offset = offset

    def place(self, *index):
        """Where in the storage the element with this index lies."""
        return self.offset + sum(i * step for i, step in zip(index, self.stride, strict=True))

    def __getitem__(self, index):
        """t[1, 2] is a number; t[1], t[:, ::2] are views: a new offset, other strides."""
        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (len(self.shape) - len(index))
        shape, stride, offset = [], [], self.offset
        for i, size, step in zip(index, self.shape, self.stride, strict=True):
            if isinstance(i, slice):
                start, stop, by = i.indices(size)
                offset += start * step
                shape.append(len(range(start, stop, by)))
                stride.append(step * by)
            elif -size <= i < size:
                offset += (i % size) * step
            else:
                raise IndexError(f"index {i} is out of bounds for a dimension with size {size}")
        return StridedArray(self.storage, shape, stride, offset) if shape else self.storage[offset]

    def transpose(self, dim0, dim1):
        order = list(range(len(self.shape)))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        shape, stride = [self.shape[d] for d in order], [self.stride[d] for d in order]
        return StridedArray(self.storage, shape, stride, self.offset)

    def expand(self, times):
        """The same thing `times` times, along a new first dimension: its stride is 0."""
        return StridedArray(self.storage, (times, *self.shape), (0, *self.stride), self.offset)

    def is_contiguous(self):
        return self.stride == row_order(self.shape)

    def tolist(self):
        return [self[i].tolist() if len(self.shape) > 1 else self[i] for i in range(self.shape[0])]

    def contiguous(self):
        """The same elements in row order: this array, or a copy with a storage of its own."""
        if self.is_contiguous():
            return self
        flat = self.tolist()
        for _ in self.shape[1:]:
            flat = [number for part in flat for number in part]
        return StridedArray(flat, self.shape)


def address_of(array: Any) -> int:
    """The address of the first element of an array, in bytes."""
    return device_of(array).backend.address(array)


def strided(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A view that starts where `array` starts, with any shape and strides (in bytes). No check."""
    return device_of(array).backend.strided(array, shape, strides)


def memory_of(array: Any) -> Any:
    """The whole memory that `array` is a view of, as a flat array of the same element type."""
    owner = storage_of(array)
    span = sum((n - 1) * step for n, step in zip(owner.shape, owner.strides, strict=True))
    count = (span + owner.itemsize) // owner.itemsize if owner.size else 0
    flat = device_of(array).backend.strided(owner, (count,), (owner.itemsize,))
    return flat if owner.dtype == array.dtype else flat.view(array.dtype)


def offset_of(array: Any) -> int:
    """The number of elements in memory before the first element of `array`."""
    address = device_of(array).backend.address
    return (address(array) - address(storage_of(array))) // array.itemsize


class UntypedStorage:
    """The bytes under a tensor and all its views: `storage[i]` reads one, `storage[i] = 0` writes.

    A write is not recorded in the graph, as in PyTorch, but it counts as a new version: backward
    raises where it needs the old elements.
    """

    def __init__(self, memory: Any, device: Device):
        self.memory = memory  # a flat array
        self.device = device

    def __len__(self) -> int:
        return self.memory.size

    def size(self) -> int:
        """The number of elements: of bytes here, of values in a TypedStorage."""
        return self.memory.size

    def nbytes(self) -> int:
        return self.memory.nbytes

    def data_ptr(self) -> int:
        """The address of the first byte. Tensors with the same storage share memory."""
        return address_of(self.memory)

    def to(self, device: Any) -> "UntypedStorage":
        """These elements on `device`: a copy, unless they are there already."""
        device = as_device(device)
        if device is self.device:
            return self
        host = self.device.backend.to_numpy(self.memory)
        return type(self)(device.backend.from_numpy(host, device.index), device)

    def cpu(self) -> "UntypedStorage":
        return self.to("cpu")

    def cuda(self, device: Any = "cuda") -> "UntypedStorage":
        return self.to(device)

    def __getitem__(self, index: int) -> Any:
        return self.memory[self._checked(index)].item()

    def __setitem__(self, index: int, value: Any) -> None:
        self.memory[self._checked(index)] = value
        bump_version(self.memory)

    def _checked(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return index

    def tolist(self) -> list:
        return self.device.backend.to_numpy(self.memory).tolist()

    def __repr__(self) -> str:
        name = f"tinytorch.storage.{type(self).__name__}({self._facts()})"
        return "".join(f" {value}\n" for value in self.tolist()) + f"[{name} of size {len(self)}]"

    def _facts(self) -> str:
        return f"device={self.device}"


class TypedStorage(UntypedStorage):
    """The memory under a tensor as values of the tensor's element type."""

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.memory.dtype]

    def _facts(self) -> str:
        return f"dtype={self.dtype}, device={self.device}"


@tensor_method("storage")
def storage(self: Tensor) -> TypedStorage:
    """The memory of the tensor, as values. Views of one tensor have the same memory."""
    return TypedStorage(memory_of(self.array), self.device)


@tensor_method("untyped_storage")
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory of the tensor, as bytes."""
    memory = memory_of(self.array)
    return UntypedStorage(memory.view(self.device.xp.uint8), self.device)


@tensor_method("storage_offset")
def storage_offset(self: Tensor) -> int:
    """The position of the tensor's first element in its storage."""
    return offset_of(self.array)


@tensor_method("narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of `length` places of dimension `dim`, beginning at `start`. A negative start counts
    from the end.

    Raises:
        RuntimeError: the part reaches past the end.
        IndexError: `start` is outside of the dimension.
    """
    if input.array.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start.array.ndim or start.array.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    dim = normalize_dim(dim, input.array.ndim)
    start, size = operator.index(start), input.array.shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if length < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return Slice.apply(input, key_along(dim, slice(start, start + length)))


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


if __name__ == "__main__":
    import time

    import numpy as np

    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.ops import indexing, shape  # noqa: F401  (their methods)

    print("strides of [4, 8]:", row_order([4, 8]))  # -> strides of [4, 8]: (8, 1)

    t = StridedArray([1, 2, 3, 4, 5, 6], [2, 3])
    print("t[1, 2] is storage", t.place(1, 2), "=", t[1, 2])  # -> t[1, 2] is storage 5 = 6

    flipped = t.transpose(0, 1)
    print(flipped.shape, flipped.stride, flipped.tolist())
    # -> (3, 2) (1, 3) [[1, 4], [2, 5], [3, 6]]
    print("same storage:", flipped.storage is t.storage)  # -> same storage: True
    print("contiguous:", flipped.is_contiguous())  # -> contiguous: False
    print("in row order:", flipped.contiguous().storage)  # -> in row order: [1, 4, 2, 5, 3, 6]

    row, column = t[1], t[:, 1]
    print("row    ", row.tolist(), row.offset, row.stride)  # -> row     [4, 5, 6] 3 (1,)
    print("column ", column.tolist(), column.offset, column.stride)  # -> column  [2, 5] 1 (3,)
    print("every 2nd", t[:, ::2].tolist(), t[:, ::2].stride)
    # -> every 2nd [[1, 3], [4, 6]] (3, 2)
    print("twice  ", row.expand(2).tolist(), row.expand(2).stride)
    # -> twice   [[4, 5, 6], [4, 5, 6]] (0, 1)
    t.storage[4] = 50  # all views see it
    print(row.tolist(), column.tolist(), flipped[1, 1])  # -> [4, 50, 6] [2, 50] 50

    # The real tensor: the same numbers.
    t = tensor([[1, 2, 3], [4, 5, 6]])
    print(t.stride(), t.storage_offset(), t.storage()[1 * 3 + 2 * 1])  # -> (3, 1) 0 6
    print(t.T.stride(), t.T.storage().tolist())  # -> (1, 3) [1, 2, 3, 4, 5, 6]
    print(t.T.storage().data_ptr() == t.storage().data_ptr())  # -> True
    copy = t.T.contiguous()
    print(t.T.is_contiguous(), copy.storage().tolist())  # -> False [1, 4, 2, 5, 3, 6]
    print("t.clone() shares memory:", t.clone().data_ptr() == t.data_ptr())
    # -> t.clone() shares memory: False
    print("t.contiguous() shares memory:", t.contiguous().data_ptr() == t.data_ptr())
    # -> t.contiguous() shares memory: True
    part = t[1].narrow(0, 1, 2)  # t[1, 1:], as PyTorch spells a start and a length
    print(part, part.storage_offset(), part.data_ptr() - t.data_ptr(), "bytes further")
    # -> tensor([5, 6]) 4 32 bytes further
    print(t.untyped_storage().nbytes(), "bytes:", t.untyped_storage().tolist()[:9])
    # -> 48 bytes: [1, 0, 0, 0, 0, 0, 0, 0, 2]
    t.storage()[4] = 50
    print(part, t._version)  # -> tensor([50,  6]) 1
    print(part.storage())  # two numbers are shown, six are kept alive
    # ->  1
    # ->  2
    # ->  3
    # ->  4
    # ->  50
    # ->  6
    # -> [tinytorch.storage.TypedStorage(dtype=tinytorch.int64, device=cpu) of size 6]

    # Row order against column order: the same 64 MB, added up along rows or down columns.
    big = np.ones((4096, 4096), dtype=np.float32)
    times = {}
    for order, lines in (("rows", big), ("columns", big.T)):
        start = time.perf_counter()
        total = sum(float(line.sum()) for line in lines)
        times[order] = time.perf_counter() - start
        print(f"{order}: the sum is {total:.0f}")
        # -> rows: the sum is 16777216
        # -> columns: the sum is 16777216
    print(f"columns take {times['columns'] / times['rows']:.1f} times as long")  # -> ...
