"""Step storage04: Storage and offset of a Tensor

Under a Tensor lies a NumPy array. stride() and shape show two of the four things of step storage01.
Where are the other two, the storage and the offset?

A view in NumPy knows the array that it is a view of (`base`), and storage_of follows that to the
array which owns the memory (step 66a counts writes there). What is still needed is its memory as
a flat row, whatever its shape and order. If the owner has the strides of some order, its elements
fill the places from 0 to the sum of (size - 1) * stride: memory_of makes a view of one dimension of
it.

The offset is a difference of addresses: that of the first element of the array, minus that of the
first element of the memory, in bytes; divided by the size of an element. Each backend knows how to
ask its arrays for an address (Backend.address of step device04).

With these, two tensors can be compared: if the memory begins at the same address, one is a view of
the other, or both of a third.

The trap: an address is a number, and does not keep anything alive. When the tensor is gone, another
one may have the same address.

PyTorch: storage_offset(), data_ptr(). An empty tensor has no element, and data_ptr() is 0.

New: address_of, memory_of, offset_of; Tensor.storage_offset, data_ptr: a new module, storage.py.
Try: memory_of(t.T.array) for the demo's t. Why are its numbers not 1 4 2 5 3 6?
"""

import math
from typing import Any

from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)


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


def memory_of(array: Any) -> Any:
    """The whole memory that `array` is a view of, as a flat array."""
    owner = storage_of(array)
    span = sum((n - 1) * step for n, step in zip(owner.shape, owner.strides, strict=True))
    count = (span + owner.itemsize) // owner.itemsize if owner.size else 0
    flat = device_of(array).backend.strided(owner, (count,), (owner.itemsize,))
    return flat


def offset_of(array: Any) -> int:
    """The number of elements in memory before the first element of `array`."""
    address = device_of(array).backend.address
    return (address(array) - address(storage_of(array))) // array.itemsize


@tensor_method("storage_offset")
def storage_offset(self: Tensor) -> int:
    """The position of the tensor's first element in its storage."""
    return offset_of(self.array)


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


if __name__ == "__main__":
    import numpy as np

    t = tensor([[1, 2, 3], [4, 5, 6]])
    print(t.shape, t.stride(), t.storage_offset(), memory_of(t.array))
    # -> tinytorch.Size([2, 3]) (3, 1) 0 [1 2 3 4 5 6]

    part = t.T[1:]
    print(part.tolist(), part.stride(), part.storage_offset(), memory_of(part.array))
    # -> [[2, 5], [3, 6]] (1, 3) 1 [1 2 3 4 5 6]
    by_hand = StridedArray(memory_of(part.array).tolist(), part.shape, part.stride(), 1)
    print("as in plain Python:", by_hand.tolist() == part.tolist())  # -> as in plain Python: True

    print(part.data_ptr() - t.data_ptr(), "bytes further")  # -> 8 bytes further
    print("the same memory:", address_of(memory_of(part.array)) == t.data_ptr())
    # -> the same memory: True
    print("clone:", t.clone().data_ptr() == t.data_ptr())  # -> clone: False
    print("contiguous:", t.contiguous().data_ptr() == t.data_ptr())  # -> contiguous: True
    print("nothing:", t[2:].data_ptr(), offset_of(t[1:].array))  # -> nothing: 0 3
    print("column order:", memory_of(np.asfortranarray(t.array)))  # -> column order: [1 4 2 5 3 6]
