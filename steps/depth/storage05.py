"""Step storage05: narrow checks its bounds

A slice that reaches too far is cut short without an error, and so is narrow of step storage04:
narrow(1, 4, 5) of six columns has two. That is the rule of Python, and often handy. For a program
that cuts a row into pieces it is the worst answer: with one wrong length all further pieces are
shifted or short, and the error appears elsewhere.

narrow knows how long the part must be, so it can check. It refuses a part that reaches past the
end, and a start outside of the dimension, in PyTorch's words. A negative start would have been
another silent mistake: slice(-2, -2 + 2) is empty. Now it counts from the end.

The start may be a tensor without dimensions, for one that a program has computed. A tensor of
floats, or with several elements, is refused: what would a start of 1.5 mean?

The trap: start = size with length 0 is allowed; the last piece may be empty.

PyTorch: the same errors. A plain slice remains what it is in Python: x[4:9] has two.

Changed: narrow.
Try: x.narrow(1, 6, 0) and x.narrow(1, 7, 0) for the demo's x.
"""

from typing import Any

from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arguments import as_integer
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
    start, length = as_integer(start), as_integer(length)
    size = input.array.shape[dim]
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
    x = tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])
    print("by slices:", x[:, 4:9].shape, x[:, -2 : -2 + 2].shape)
    # -> by slices: tinytorch.Size([2, 2]) tinytorch.Size([2, 0])
    for call in (
        lambda: x.narrow(1, 4, 5),
        lambda: x.narrow(1, 7, 0),
        lambda: tensor(1.0).narrow(0, 0, 1),
        lambda: x.narrow(1, tensor([0]), 1),
    ):
        try:
            call()
        except (RuntimeError, IndexError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: start (4) + length (5) exceeds dimension size (6).
    # -> IndexError: start out of range (expected [-6, 6], but got 7)
    # -> RuntimeError: narrow() cannot be applied to a 0-dim tensor.
    # -> RuntimeError: start must be an 0-dim integral Tensor.
    print(x.narrow(1, -2, 2).tolist(), x.narrow(0, tensor(1), 1).shape)
    # -> [[5, 6], [11, 12]] tinytorch.Size([1, 6])
