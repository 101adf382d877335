"""Step 66n: as_strided, unfold, and writes through views

If shape, stride and offset are only numbers, they can be any numbers. as_strided takes them from
you and makes a view of another tensor's storage. Strides (1, 1) are worth a look: the rows of such
a view are windows that overlap, each one place further on.

    x = 0 1 2 3 4      x.as_strided((3, 3), (1, 1)) = 0 1 2
                                                      1 2 3
                                                      2 3 4

Nine elements in five places. unfold makes such windows along one dimension, checked, and with no
strides to work out. Their mean is a moving average; a convolution will be a matrix product with
them.

The gradient follows the places, not the elements: x[2] appears three times, so it receives the sum
of three gradients. Fold adds the windows up where they came from, one slice for each of the places
in a window. It is the adjoint of Unfold, and Unfold is the adjoint of Fold: the second derivative
comes for free.

Then the hard question: someone writes through a view, `view.mul_(5)`. The base has changed too, and
so have all other views. CopySlices (step 43) handles this: the new base is the old one with a part
replaced. But that only works if each element of the view is exactly one element of the base. If
windows overlap, which of two writes wins? There is no right answer, and the gradient would be wrong
without a warning. So a view whose elements overlap is not `writable`: a write to it raises an error
if gradients are recorded. (PyTorch refuses only a stride of 0. It writes to other overlapping
elements all the same.)

Trap: as_strided knows the storage, not the tensor. Given a slice, it can reach what lies beside
the slice. It refuses only what lies outside the storage. Here it has no gradient; PyTorch's has.

Changed: StridedArray goes, the real tensor does it all. New: AsStrided, as_strided, Unfold, Fold,
unfold: storage.py is finished.
Try: let Fold write (`y[...] = x[..., k]`) instead of adding, and see which lines notice.
"""

import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, storage_of
from tinytorch.ops.broadcast import as_integer, as_shape
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.parts import Slice, key_along


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
    start, size = as_integer(start), input.array.shape[dim]
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


# A view by hand: any shape and strides over the same memory.


class AsStrided(Function):
    """y[i, j] = memory[start + i * stride[0] + j * stride[1]]: a view of the memory under x.

    `start` is counted from the first element of x. Elements of y may share a place or lie outside
    of x, so a write that is recorded is refused, and there is no gradient.
    """

    view = True
    writable = False

    def forward(ctx, x: Any, size: tuple, stride: tuple, start: int) -> Any:
        memory = memory_of(x)[offset_of(x) + start :]
        return strided(memory, size, tuple(step * x.itemsize for step in stride))


@tensor_method("as_strided")
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage of `input` with a shape and strides (in elements) of your own.

    Args:
        size, stride: one number for each dimension of the view.
        storage_offset: the place of the first element in the storage; that of `input` by default.

    Raises:
        RuntimeError: the view would reach beyond the storage, or a number is negative.
        NotImplementedError: `input` requires a gradient; `unfold` has one.
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
    if state.grad_enabled and input.requires_grad:
        raise NotImplementedError("as_strided() has no gradient: use unfold() or detach()")
    if math.prod(size):
        last = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        need, available = (last + 1) * input.array.itemsize, memory_of(input.array).nbytes
        if need > available:
            raise RuntimeError(
                f"as_strided: size {list(size)} and stride {list(stride)} need {need} bytes from a "
                f"storage of size {available}"
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


# Writes with a name: a copy, and an assignment to the copy.


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)

    x = tensor([0.0, 1.0, 2.0, 3.0, 4.0], requires_grad=True)
    windows = x.detach().as_strided((3, 3), (1, 1))
    print(windows.tolist())  # -> [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    print("the same memory:", windows.data_ptr() == x.data_ptr())  # -> the same memory: True
    print("unfold says the same:", x.unfold(0, 3, 1).tolist() == windows.tolist())
    # -> unfold says the same: True
    print("moving average:", x.unfold(0, 3, 1).mean(1).tolist())
    # -> moving average: [1.0, 2.0, 3.0]

    x.unfold(0, 3, 1).sum().backward()
    print("how often each place is read:", x.grad.tolist())
    # -> how often each place is read: [1.0, 2.0, 3.0, 2.0, 1.0]
    x64 = tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    for view in (lambda x: x.unfold(1, 2, 2), lambda x: x.T.unfold(0, 3, 1)):
        print(gradcheck(view, (x64,)), gradgradcheck(view, (x64,)))
        # -> True True
        # -> True True

    # A write through a view: base, view and gradient agree.
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1
    pairs = y.unfold(0, 2, 2)
    pairs[0].mul_(10)
    print(y.tolist(), y._version, pairs._version)  # -> [10.0, 20.0, 3.0, 4.0] 1 1
    y.sum().backward()
    print(x.grad.tolist())  # -> [10.0, 10.0, 1.0, 1.0]

    # Views made before the write follow it.
    x.grad = None
    y = x * 1
    before = y.unfold(0, 2, 2)
    y.mul_(3)
    before.sum().backward()
    print(before.tolist(), x.grad.tolist())
    # -> [[3.0, 6.0], [9.0, 12.0]] [3.0, 3.0, 3.0, 3.0]

    def refused(action):
        try:
            action()
        except (RuntimeError, NotImplementedError) as error:
            return str(error).split(": its")[0]
        return "allowed"

    y = x * 1
    print(refused(lambda: y.unfold(0, 2, 1).mul_(2)))
    # -> a view made by UnfoldToRead cannot be written in place where gradients are recorded
    print(refused(lambda: (x * 1).detach().unfold(0, 2, 1).mul_(2)))  # -> allowed
    print(refused(lambda: y.as_strided((2,), (2,))))
    # -> as_strided() has no gradient: use unfold() or detach()

    # Beside the slice, and outside of the storage.
    part = tensor([1.0, 2.0, 3.0, 4.0])[:1]
    print(part.as_strided((1,), (1,), 3).tolist(), "is not in", part.tolist())
    # -> [4.0] is not in [1.0]
    for size, stride in (((3, 3), (1, 1)), ((2,), (-1,)), ((2,), (1, 1))):
        print(refused(lambda size=size, stride=stride: part.as_strided(size, stride)))
        # -> as_strided: size [3, 3] and stride [1, 1] need 20 bytes from a storage of size 16
        # -> as_strided: size [2], stride [-1] and storage offset 0 must not be negative
        # -> mismatch in length of strides and shape
