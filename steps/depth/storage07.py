"""Step storage07: Writes to overlapping windows are refused

A program writes through a view, `view.mul_(5)`. The base has changed too, and so have all other
views. CopySlices (step 67c) handles this: the new base is the old one with a part replaced. That
works for windows side by side. With windows that overlap, the result in memory depends on the order
of the writes, and the gradient is wrong without a warning (the demo shows both):

    y = 1 1 1      windows = y0 y1      windows *= 2 in memory: y1 once, or twice?
                             y1 y2

There is no right answer, as one place holds two elements of the view. A write is well defined only
if each element of the view has a place of its own. So a view whose elements overlap is not
`writable`: where gradients are recorded, a write to it raises an error. UnfoldToRead says so, and
unfold chooses it where the step is shorter than the window.

Where nothing is recorded, a write is allowed, in NumPy's order. (PyTorch refuses only a stride of
0. It writes to other overlapping elements all the same.)

Changed: unfold. New: UnfoldToRead.
Try: let unfold ask for `step <= size`. Which correct write of the demo is refused then?
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
    """
    dim = normalize_dim(dimension, self.array.ndim)
    function = UnfoldToRead if step < size else Unfold
    return function.apply(self, dim, size, step)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd import backward  # noqa: F401

    # Overlapping windows, written by hand: some elements are multiplied twice, or not?
    y = np.ones(3)
    windows = strided(y, (2, 2), (8, 8))
    windows *= 2
    print("NumPy multiplies the middle once:", y)  # -> NumPy multiplies the middle once: [2. 2. 2.]
    y = np.ones(3)
    for row in strided(y, (2, 2), (8, 8)):
        row *= 2
    print("row by row, twice:", y)  # -> row by row, twice: [2. 4. 2.]

    # On tensors, as step storage06 would do it: y is 2 x, but the gradient is not 2 everywhere.
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1
    Unfold.apply(y, 0, 2, 1).mul_(2)
    y.sum().backward()
    print(y.tolist(), "gradient:", x.grad.tolist())
    # -> [2.0, 4.0, 6.0, 8.0] gradient: [2.0, 4.0, 4.0, 2.0]

    # Windows side by side: base, view and gradient agree.
    x.grad = None
    y = x * 1
    pairs = y.unfold(0, 2, 2)
    pairs[0].mul_(10)
    print(y.tolist(), y._version, pairs._version)  # -> [10.0, 20.0, 3.0, 4.0] 1 1
    y.sum().backward()
    print(x.grad.tolist())  # -> [10.0, 10.0, 1.0, 1.0]

    # Views made before the write follow it (step 67b).
    x.grad = None
    y = x * 1
    before = y.unfold(0, 2, 2)
    y.mul_(3)
    before.sum().backward()
    print(before.tolist(), x.grad.tolist())
    # -> [[3.0, 6.0], [9.0, 12.0]] [3.0, 3.0, 3.0, 3.0]

    y = x * 1
    try:
        y.unfold(0, 2, 1).mul_(2)
    except RuntimeError as error:
        print(error)  # -> a view made by UnfoldToRead cannot be written in place where ...
    print("not recorded:", y.detach().unfold(0, 2, 1).mul_(2).shape)
    # -> not recorded: tinytorch.Size([3, 2])
