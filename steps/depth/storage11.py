"""Step storage11: as_strided: a gradient through the memory

A library for differential equations calls torch.as_strided(t, (), ()), a view with nothing in it
but t, and differentiates through it. as_strided of step storage10 refuses: which element of x is
y[i, j]? It may be several, or none.

The memory between the two knows. Every element of x has a place in it, and so has every element of
y. Where the places are equal, it is the same number:

    y[i, j]  -- start + i stride[0] + j stride[1] -->  place  <-- its own strides --  x[k]

So backward makes a memory of zeros, adds the gradient of each y[i, j] at its place, and reads the
places of x. Places that y reads twice get a sum, and those that only others use are left.

The trap is an x whose own elements share a place: an expanded tensor, for example. Each of them
would get the whole gradient, and the sum on the way back would count it twice. So they share it, as
in PyTorch. (In step storage10 as_strided was careful about writes; they are refused still.)

New: strided_places. Changed: AsStrided, as_strided: storage.py is finished.
Try: leave `share` out, and differentiate through an expanded tensor.
"""

import importlib
import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.arithmetic import Mul
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import AddIndex, Index
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


def strided_places(xp: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The place in memory of each element of a view, counted in elements from its first one."""
    places = xp.zeros(shape, np.int64)
    for dim, (n, step) in enumerate(zip(shape, strides, strict=True)):
        places += xp.arange(n).reshape((n,) + (1,) * (len(shape) - 1 - dim)) * step
    return places


class AsStrided(Function):
    """y[i, j] = memory[start + i * stride[0] + j * stride[1]]: a view of the memory under x.

    `start` is counted from the first element of x. Elements of y may share a place or lie outside
    of x, so a write that is recorded is refused. Backward goes through the memory, too: gradients
    at one place add up, and x gets those at its own places. Elements of x that share a place share
    the gradient.
    """

    view = True
    writable = False

    def forward(ctx, x: Any, size: tuple, stride: tuple, start: int) -> Any:
        memory = memory_of(x)[offset_of(x) + start :]
        steps = tuple(step // x.itemsize for step in x.strides)
        ctx.places = x.shape, steps, size, stride, start
        return strided(memory, size, tuple(step * x.itemsize for step in stride))

    def backward(ctx, g: Any) -> Any:
        shape, steps, size, stride, start = ctx.places
        xp = ctx.device.xp
        mine, others = strided_places(xp, shape, steps), strided_places(xp, size, stride) + start
        every = xp.concatenate([mine.reshape(-1), others.reshape(-1), xp.zeros(1, np.int64)])
        low, count = every.min(), int(every.max() - every.min()) + 1
        memory = ctx.call(AddIndex, g, (count,), (), others - low)
        share = 1 / xp.bincount(mine.reshape(-1) - low, minlength=count)[mine - low]
        share = share.astype(getattr(g, "array", g).dtype)
        return ctx.call(Mul, ctx.call(Index, memory, (), mine - low), share)


@tensor_method("as_strided")
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage of `input` with a shape and strides (in elements) of your own.

    Args:
        size, stride: one number for each dimension of the view.
        storage_offset: the place of the first element in the storage; that of `input` by default.

    Raises:
        RuntimeError: the view would reach beyond the storage, or a number is negative.
        NotImplementedError: `input` is a view that requires a gradient, and the result would reach
            beyond it: where its base is written later, the two would no longer agree.
    """
    size, stride, here = as_shape((size,)), as_shape((stride,)), offset_of(input.array)
    first = here if storage_offset is None else as_integer(storage_offset)
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if min((*size, *stride, first)) < 0:
        raise RuntimeError(
            f"as_strided: size {list(size)}, stride {list(stride)} and storage offset {first} must "
            f"not be negative"
        )
    if math.prod(size):
        last = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        need, available = (last + 1) * input.array.itemsize, memory_of(input.array).nbytes
        if need > available:
            raise RuntimeError(
                f"as_strided: size {list(size)} and stride {list(stride)} need {need} bytes from a "
                f"storage of size {available}"
            )
    if state.grad_enabled and input.requires_grad and input._view is not None:
        xp, steps = input.device.xp, [step // input.array.itemsize for step in input.array.strides]
        mine = strided_places(xp, input.array.shape, tuple(steps))
        if not xp.isin(strided_places(xp, size, stride) + (first - here), mine).all():
            raise NotImplementedError(
                "as_strided() of a view that reaches beyond the view has no gradient: apply it to "
                "the base, or detach() it"
            )
    return AsStrided.apply(input, size, stride, first - here)


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
    importlib.import_module("tinytorch.autograd.backward")
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x.as_strided((3, 2), (1, 1))
    print(y.tolist())  # -> [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    y.sum().backward()
    print(x.grad.tolist())  # -> [1.0, 2.0, 2.0, 1.0]
    x.grad = None
    (x[1:3] * 1).as_strided((), ()).backward()
    print(x.grad.tolist())  # -> [0.0, 1.0, 0.0, 0.0]
    one = tensor([5.0], requires_grad=True)
    one.expand(3).as_strided((2,), (0,)).sum().backward()
    print(one.grad.tolist())  # -> [2.0]
    for size in (4, 9):
        try:
            x[1:3].as_strided((size,), (1,), 0)
        except RuntimeError as error:
            print(str(error)[:50])
    # -> as_strided() of a view that reaches beyond the vie
    # -> as_strided: size [9] and stride [1] need 36 bytes
