"""Step storage04: narrow: a part by start and length

A program that packs all parameters of a network into one row of numbers, and cuts them out again,
knows where each piece starts and how long it is. With slices it has to add the two, and write a `:`
for each dimension in front: x[:, :, start : start + length].

    narrow(x, dim, start, length)      x[start : start + length] of dimension dim

It is a view like any slice: another offset and another size, the same strides. What is written into
a piece is written into the row.

The piece keeps its strides, so it is contiguous only along dimension 0; a part of the columns has
gaps between its rows, and a reshape copies it (step shape03). In a flat row every piece is
contiguous, so it can take the shape of its parameter for free.

The trap: a slice takes start and end, narrow takes start and length. x.narrow(0, 2, 5) has five
elements, x[2:5] three.

PyTorch: torch.narrow.

New: narrow.
Try: narrow(1, 4, 5) of the demo's x. How many columns does it have?
"""

import math
from typing import Any

from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.slicing import Slice, key_along


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
    """A view of `length` places of dimension `dim`, beginning at `start`."""
    dim = normalize_dim(dim, input.array.ndim)
    return Slice.apply(input, key_along(dim, slice(start, start + length)))


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


if __name__ == "__main__":
    x = tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
    part = x.narrow(1, 1, 3)
    print(part.tolist(), part.storage_offset(), part.stride())
    # -> [[2, 3, 4], [8, 9, 10]] 1 (6, 1)
    print("a view:", part.storage().data_ptr() == x.storage().data_ptr())  # -> a view: True
    print("contiguous:", part.is_contiguous(), x.narrow(-2, 1, 1).is_contiguous())
    # -> contiguous: False True

    # One row of parameters, cut into pieces. A write into a piece shows in the row.
    flat, start = tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), 0
    for shape in ((2, 2), (3,)):
        length = math.prod(shape)
        piece = flat.narrow(0, start, length).reshape(shape)
        print(piece.tolist())
        # -> [[1.0, 2.0], [3.0, 4.0]]
        # -> [5.0, 6.0, 7.0]
        piece.mul_(10)
        start += length
    print(flat.tolist())  # -> [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
