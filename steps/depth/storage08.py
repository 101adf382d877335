"""Step storage08: unfold checks its arguments

unfold of step storage06 does not check its arguments. A window of 6 in five elements gives no
window, and no error: a program that averages over it gets nothing, or nan. A window of 7 would be
-1 windows, and NumPy complains of negative dimensions. With a step of 0 Python reports a division
by zero. None of these messages names the wrong argument.

So they are checked, in PyTorch's words, before anything is computed: the size from 0 to the length
of the dimension, the step from 1.

A tensor without dimensions counts as one with a single element, as in gather (step gather02): it
becomes [1], and the result loses the extra dimension.

Size 0 is allowed, as in PyTorch: n + 1 windows without elements.

Changed: unfold.
Try: which error does unfold(0, 3, 1) of an empty tensor raise?
"""

from typing import Any

from tinytorch.autograd.node import Function
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


class Unfold(Function):
    """y[i, ..., k] = x[i * step + k]: all windows of `size` elements along `dim`, as a view."""

    view = True

    def forward(ctx, x: Any, dim: int, size: int, step: int) -> Any:
        ctx.call_with = x.shape, dim, size, step
        count = (x.shape[dim] - size) // step + 1
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
        steps = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
        return strided(x, shape, steps)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Fold, g, *ctx.call_with)

    def name(ctx) -> str:
        return "UnfoldBackward0"


class UnfoldToRead(Unfold):
    """Windows that overlap."""

    writable = False


class Fold(Function):
    """The sum of the windows, each at its position: the adjoint of `Unfold`."""

    def forward(ctx, x: Any, shape: tuple, dim: int, size: int, step: int) -> Any:
        ctx.call_with = dim, size, step
        y = ctx.xp.zeros(shape, x.dtype)
        reach = step * (x.shape[dim] - 1) + 1
        for k in range(size):
            y[(slice(None),) * dim + (slice(k, k + reach, step),)] += x[..., k]
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Unfold, g, *ctx.call_with)


@tensor_method("unfold")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` elements along a dimension, `step` apart; the last dimension is new.

    (7,) with size 3, step 2 gives (3, 3).

    Raises:
        RuntimeError: the window is longer than the dimension, `size` is negative or `step` is below
            1.
    """
    x = self if self.array.ndim else self.reshape(1)
    dim, size, step = normalize_dim(dimension, x.array.ndim), as_integer(size), as_integer(step)
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    n = x.array.shape[dim]
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step < 1:
        raise RuntimeError(f"step is {step} but must be > 0")
    function = UnfoldToRead if step < size else Unfold
    out = function.apply(x, dim, size, step)
    return out if self.array.ndim else out.reshape(size)


if __name__ == "__main__":
    x = tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    for size, step in ((6, 1), (7, 1), (2, 0)):
        try:
            print("as it was:", Unfold.apply(x, 0, size, step).shape)
            # -> as it was: tinytorch.Size([0, 6])
        except (RuntimeError, ZeroDivisionError) as error:
            print("as it was:", error)
            # -> as it was: unfold: negative dimensions are not allowed (shapes [5])
            # -> as it was: ...by zero
    for size, step in ((6, 1), (2, 0), (-1, 1)):
        try:
            x.unfold(0, size, step)
        except RuntimeError as error:
            print(error)
            # -> maximum size for tensor at dimension 0 is 5 but size is 6
            # -> step is 0 but must be > 0
            # -> size is -1 but must be >= 0
    print(x.unfold(0, 0, 1).shape, x.unfold(0, 5, 9).tolist())
    # -> tinytorch.Size([6, 0]) [[0.0, 1.0, 2.0, 3.0, 4.0]]
    number = tensor(7.0)
    print(number.unfold(0, 1, 1).tolist(), number.unfold(0, 0, 1).shape)
    # -> [7.0] tinytorch.Size([0])
