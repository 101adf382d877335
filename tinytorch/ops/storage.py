"""What lies under a tensor: flat memory, and the shape, strides and offset that read it."""

import functools
import math
import operator
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.parts import Slice, along
from tinytorch.ops.shape import is_contiguous


@functools.singledispatch
def address_of(array: Any) -> int:
    """Where in memory the first element of an array lies."""
    return array.__array_interface__["data"][0]


@functools.singledispatch
def strided(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A view that starts where `array` starts, with any shape and strides (in bytes). No check."""
    return device_of(array).xp.lib.stride_tricks.as_strided(array, shape, strides)


def memory_of(array: Any) -> Any:
    """All memory of which `array` shows a part, as one flat array of the same element type."""
    owner = storage_of(array)
    span = sum((n - 1) * step for n, step in zip(owner.shape, owner.strides, strict=True))
    count = (span + owner.itemsize) // owner.itemsize if owner.size else 0
    flat = strided(owner, (count,), (owner.itemsize,))
    return flat if owner.dtype == array.dtype else flat.view(array.dtype)


def offset_of(array: Any) -> int:
    """How many elements of its memory lie before the first element of `array`."""
    return (address_of(array) - address_of(storage_of(array))) // array.itemsize


def steps_of(array: Any) -> tuple[int, ...]:
    """The strides in elements; 0 where a dimension is too short to make a step."""
    pairs = zip(array.shape, array.strides, strict=True)
    return tuple(step // array.itemsize if n > 1 else 0 for n, step in pairs)


class UntypedStorage:
    """The bytes under a tensor and all its views: `storage[i]` reads one, `storage[i] = 0` writes.

    A write goes past the graph, as it does in PyTorch. What backward has saved notices it.
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
        """The address of the first byte. Two tensors share memory if their storages agree in it."""
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
    """The place of the tensor's first element in its storage."""
    return offset_of(self.array)


@tensor_method("narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of the `length` places from `start` on in dimension `dim`. A negative start counts
    from the end. RuntimeError where the part reaches past the end, IndexError for a bad start."""
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
    return Slice.apply(input, along(dim, slice(start, start + length)))


@tensor_method("data_ptr")
def data_ptr(self: Tensor) -> int:
    """The address of the tensor's first element; 0 for a tensor without elements."""
    return address_of(self.array) if self.array.size else 0


def places(xp: Any, shape: tuple[int, ...], steps: tuple[int, ...], start: int) -> Any:
    """The place in memory of each element: start + i * steps[0] + j * steps[1] + ..."""
    result = xp.full(shape, start, dtype=xp.int64)
    for dim, (n, step) in enumerate(zip(shape, steps, strict=True)):
        result += (xp.arange(n) * step).reshape((n,) + (1,) * (len(shape) - dim - 1))
    return result


def overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two elements may share a place: a step no longer than all shorter ones together."""
    reach = 0
    for step, n in sorted(zip(stride, size, strict=True)):
        if n > 1 and step <= reach:
            return True
        reach += (n - 1) * step
    return False


class Relay(Function):
    """Lays x out in empty memory as (shape, steps, start) `source` says, adding where elements fall
    on one place, and reads it as `target` says. What several elements of `whole` share is divided
    among them."""

    def forward(ctx, x: Any, source: tuple, target: tuple, whole: tuple) -> Any:
        ctx.call_with = source, target, whole
        xp, low = ctx.xp, min(source[2], target[2])
        to, at, shared = (
            places(xp, shape, steps, start - low) for shape, steps, start in (source, target, whole)
        )
        length = 1 + max(int(part.max()) if part.size else 0 for part in (to, at))
        values = x.astype(xp.float64).reshape(-1)
        memory = xp.bincount(to.reshape(-1), weights=values, minlength=length)
        owners = xp.bincount(shared.reshape(-1), minlength=length)
        return (memory / xp.maximum(owners, 1))[at].astype(x.dtype)

    def backward(ctx, g: Any) -> Any:
        source, target, whole = ctx.call_with
        return ctx.call(Relay, g, target, source, whole)


class AsStrided(Function):
    """y[i, j] = memory[start + i * stride[0] + j * stride[1]], a view of the memory of x.

    start is counted from the first element of x, which lies in memory by `steps`. The gradient of
    an element is the sum over all places of y where it appears.
    """

    view = True

    def forward(ctx, x: Any, size: tuple, stride: tuple, start: int, steps: tuple) -> Any:
        ctx.places = (x.shape, steps, 0), (size, stride, start)
        if steps_of(x) != steps:  # a gradient in the place of x, which may lie in another order
            return ctx.call(Relay, x, ctx.places[0], ctx.places[1], ctx.places[0])
        memory = memory_of(x)[offset_of(x) + start :]
        return strided(memory, size, tuple(step * x.itemsize for step in stride))

    def backward(ctx, g: Any) -> Any:
        whole, part = ctx.places
        return ctx.call(Relay, g, part, whole, whole)

    def name(ctx) -> str:
        return "AsStridedBackward0"


class AsStridedToRead(AsStrided):
    """A view whose elements overlap, or lie outside of the tensor that it was made from."""

    writable = False


@tensor_method("as_strided")
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage of `input` with a shape and strides (in elements) of your own.

    Args:
        size, stride: one number for each dimension of the view.
        storage_offset: the place of the first element in the storage; that of `input` by default.
    Raises RuntimeError where the view would reach beyond the storage, and for negative numbers.
    """
    size, stride, array = tuple(size), tuple(stride), input.array
    here = offset_of(array)
    first = here if storage_offset is None else storage_offset
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported, got {list(stride)}")
    if any(n < 0 for n in size) or first < 0:
        raise RuntimeError(f"as_strided: invalid size {list(size)} or storage offset {first}")
    end = first
    if math.prod(size):
        end += 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        available = memory_of(array).nbytes
        if end * array.itemsize > available:
            need = f"{end * array.itemsize} bytes from a storage of size {available}"
            raise RuntimeError(
                f"as_strided: sizes {list(size)}, strides {list(stride)} need {need}"
            )
    # Where the graph has to know what a write changes, each element has to be one of input's, and
    # the base has to lie in memory as its gradient does: row by row.
    base = input if input._base is None else input._base
    inside = here <= first and end <= here + array.size and is_contiguous(input)
    safe = inside and is_contiguous(base) and not overlaps(size, stride)
    function = AsStrided if safe else AsStridedToRead
    out = function.apply(input, size, stride, first - here, steps_of(array))
    if out._view is not None:  # one call leads from the base to this view
        place = first - offset_of(base.array)
        out._view.calls = ((function, (size, stride, place, steps_of(base.array))),)
    return out


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
    """The sum of the windows, each at its place: what Unfold takes apart."""

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

    (7,) with size 3, step 2 gives (3, 3). RuntimeError where the window is longer than the tensor.
    """
    x = self if self.array.ndim else self.reshape(1)
    dim = normalize_dim(dimension, x.array.ndim)
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
