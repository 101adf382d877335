"""Step storage02: Storages: the memory as values and as bytes

memory_of of step storage01 gives an array, and a write to it goes unnoticed: it is not counted
(step 66a), so backward does not know that a saved value was overwritten. Programs that look at
the memory, to save or to share it, get an object instead, the storage:

    t.storage()            the memory as values of t's type                  TypedStorage
    t.untyped_storage()    the same memory as bytes, whatever the type       UntypedStorage

Bytes are what a file holds, and two tensors of different types may share. Both can be read and
written element by element, and both count a write. As in PyTorch, the graph does not record it: the
gradient ignores the write, but backward raises an error where it needs the old elements.

A tensor may see the memory with another type than its owner (x.view(dtype) in NumPy), so memory_of
now returns it with the type of the array that it was given.

The trap: storage() of a small view is the whole memory. To save a row of a table this way saves the
table. (torch.save does that; clone() the row first.)

Changed: memory_of. New: UntypedStorage, TypedStorage; Tensor.storage, untyped_storage.
Try: leave out bump_version, and see which promise fails.
"""

from typing import Any

from tinytorch.core.device import Device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)


def address_of(array: Any) -> int:
    """The address of the first element of an array, in bytes."""
    return device_of(array).backend.address(array)


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


class TypedStorage(UntypedStorage):
    """The memory under a tensor as values of the tensor's element type."""

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.memory.dtype]


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


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd import backward  # noqa: F401

    t = tensor([[1, 2, 3], [4, 5, 6]])
    part = t.T[1:]
    values, raw = part.storage(), part.untyped_storage()
    print(values.tolist(), values.dtype, len(values), values.size())
    # -> [1, 2, 3, 4, 5, 6] tinytorch.int64 6 6
    print(raw.nbytes(), "bytes:", raw.tolist()[:9])  # -> 48 bytes: [1, 0, 0, 0, 0, 0, 0, 0, 2]
    print("the same memory:", values.data_ptr() == raw.data_ptr() == t.storage().data_ptr())
    # -> the same memory: True

    values[4] = 50
    raw[0] = 7
    print(t.tolist(), part.tolist(), t._version)  # -> [[7, 2, 3], [4, 50, 6]] [[2, 50], [3, 6]] 2
    print(values[-1], raw[8])  # -> 6 2
    halves = t.array.view(np.int32)  # the same memory as numbers of 4 bytes
    print(memory_of(halves).size, halves.base is not None)  # -> 12 True
    try:
        values[6]
    except IndexError as error:
        print(error)  # -> index 6 out of range for storage of size 6

    # A write that backward notices.
    x = tensor([1.0, 2.0], requires_grad=True)
    w = tensor([3.0, 4.0])
    y = (x * w).sum()
    w.storage()[0] = 30.0
    try:
        y.backward()
    except RuntimeError as error:
        print(error)  # -> one of the variables needed for gradient computation has been ...
