"""Step storage06: unfold as a view, in the package's dress

Step 72g built windows that overlap, by two strides, and their way back. Here Unfold is a view of a
real tensor: nothing is copied, and the windows are `step` apart, along any dimension. Fold adds the
windows up where they came from, one slice for each of the places in a window. Each is the adjoint
of the other, so the second derivative comes for free.

    x = 0 1 2 3 4      shape (3, 3), strides (1, 1) = 0 1 2
                                                      1 2 3
                                                      2 3 4

The trap: strided checks nothing. Wrong strides read memory beside the array.

PyTorch: Tensor.unfold. A convolution is a matrix product with windows (step conv01).

New: strided, Unfold, Fold, unfold.
Try: let Fold write (`y[...] = x[..., k]`) instead of adding, and see which lines notice.
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
    """
    dim = normalize_dim(dimension, self.array.ndim)
    return Unfold.apply(self, dim, size, step)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd import engine  # noqa: F401  (backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    x = tensor([0.0, 1.0, 2.0, 3.0, 4.0], requires_grad=True)
    windows = x.unfold(0, 3, 1)
    print(windows.tolist())  # -> [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    print(windows.stride(), "the same memory:", windows.data_ptr() == x.data_ptr())
    # -> (1, 1) the same memory: True
    print("moving average:", windows.mean(1).tolist())  # -> moving average: [1.0, 2.0, 3.0]
    windows.sum().backward()
    print("how often each place is read:", x.grad.tolist())
    # -> how often each place is read: [1.0, 2.0, 3.0, 2.0, 1.0]
    print("name:", windows.grad_fn.name())  # -> name: UnfoldBackward0

    # Along any dimension, with any step. What does not fill a window is left out.
    x64 = tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    print(x64.unfold(1, 3, 2).shape, x64.unfold(0, 2, 1).shape)
    # -> tinytorch.Size([3, 1, 3]) tinytorch.Size([2, 4, 2])
    for view in (lambda x: x.unfold(1, 2, 2), lambda x: x.T.unfold(0, 3, 1)):
        print(gradcheck(view, (x64,)), gradgradcheck(view, (x64,)))
        # -> True True
        # -> True True
