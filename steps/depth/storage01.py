"""Step storage01: Storage and offset of a real tensor

Steps 69a to 69c built a tensor in plain Python: storage, shape, stride, offset. Under a real Tensor
lies a NumPy array, whose shape and strides are known. Where are the other two, the storage and the
offset?

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

from typing import Any

from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)


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

    print(part.data_ptr() - t.data_ptr(), "bytes further")  # -> 8 bytes further
    print("the same memory:", address_of(memory_of(part.array)) == t.data_ptr())
    # -> the same memory: True
    print("clone:", t.clone().data_ptr() == t.data_ptr())  # -> clone: False
    print("contiguous:", t.contiguous().data_ptr() == t.data_ptr())  # -> contiguous: True
    print("nothing:", t[2:].data_ptr(), offset_of(t[1:].array))  # -> nothing: 0 3
    print("column order:", memory_of(np.asfortranarray(t.array)))  # -> column order: [1 4 2 5 3 6]
