"""Step storage03: Storages on other devices, and how they print

A storage on a GPU cannot be written to a file, nor compared with one in the host's memory: its
address belongs to the other device. `to` copies it, as Tensor.to does (step 63b): through the
host's memory, from_numpy on one side and to_numpy on the other. On its own device it is the storage
itself, not a copy. cpu() and cuda() are its short forms.

A copy has memory of its own. With tensors that is the trap: views that share memory on the CPU are
copied one by one, and share nothing on the GPU. To keep them together, move the storage once, and
make the views anew; step files04 does that when it loads a file.

A storage prints all of its values, one in a line, and then what it is. It does not abridge, so the
storage of a small view shows how much memory the view keeps alive.

PyTorch: the same methods; storages print like this.

Changed: UntypedStorage, TypedStorage.
Try: print(tensor([1.0]).untyped_storage()). Which of the bytes holds the sign?
"""

from typing import Any

from tinytorch.core.device import Device, as_device, device_of
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


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


if __name__ == "__main__":
    import numpy as np

    from tinytorch.core.device import Backend, register_backend

    t = tensor([1, 2, 3, 4, 5, 6])
    print(t[4:].storage())  # two numbers are asked for, six are kept alive
    # ->  1
    # ->  2
    # ->  3
    # ->  4
    # ->  5
    # ->  6
    # -> [tinytorch.storage.TypedStorage(dtype=tinytorch.int64, device=cpu) of size 6]
    print(repr(tensor([1]).untyped_storage()).splitlines()[-1])
    # -> [tinytorch.storage.UntypedStorage(device=cpu) of size 8]

    # A second device, which lives in the host's memory as well.
    class Far(np.ndarray):
        pass

    copies = lambda array, index=None: array.copy().view(Far)  # noqa: E731
    register_backend("far", Backend(np, Far, copies, lambda array: array.view(np.ndarray)))
    here = t.storage()
    there = here.to("far")
    print(there.device, there.tolist() == here.tolist(), there.data_ptr() == here.data_ptr())
    # -> far True False
    there[0] = 100
    print(here[0], there.cpu()[0], here.cpu() is here)  # -> 1 100 True
    try:
        place = here.cuda().device.type
    except RuntimeError as error:  # there is no GPU
        place = error
    print("cuda():", place)  # -> ...
