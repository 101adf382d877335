"""Step 66b: Views by hand, and what a write through them does

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
of three gradients. Relay does this for any layout. It lays the gradient out in empty memory as the
view was laid out, adding where elements share a place, and reads it as x was laid out. (Elements of
x that share a place themselves, as after expand, also share what arrives there.) Its own backward
is the same with source and target exchanged, so the second derivative comes for free.

Then the hard question: someone writes through a view, `view.mul_(5)`. The base has changed too, and
so have all other views. CopySlices (step 43) handles this: the new base is the old one with a part
replaced. But that only works if each element of the view is exactly one element of the base. If
elements overlap, which of two writes wins? There is no right answer. If they lie outside what the
view was made from, the graph does not know whose they are. The gradient would be wrong without a
word. So such a view is not `writable`: a write to it raises an error if gradients are recorded.
(PyTorch refuses only a stride of 0. It writes to other overlapping elements all the same.)

Trap: as_strided knows the storage, not the tensor. Given a slice, it can reach what lies beside
the slice. It refuses only what lies outside the storage.

index_fill, index_copy, index_put and masked_scatter are writes with a name: they assign to a copy,
or, with `_` at the end, to the tensor itself.

Changed: StridedArray goes, the real tensor does it all. New: Relay, AsStrided, as_strided, Unfold,
Fold, unfold: storage.py is finished. index_fill and its kin: writing.py.
Try: let Relay write (`memory = xp.zeros(length)`, `memory[to.reshape(-1)] = values`), not add.
"""

import functools
import math
import operator
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import DType, bool_
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import count_write, storage_of
from tinytorch.ops.arithmetic import add
from tinytorch.ops.broadcast import broadcast_tensors, expand
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import zeros
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.gather import check_source, line, masked_fill
from tinytorch.ops.indexing import AddIndex, Index, IndexPut, check_same_dtype, parse
from tinytorch.ops.parts import Slice, along
from tinytorch.ops.shape import flatten, is_contiguous, reshape


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
        count_write(self.memory)

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


# A view by hand: any shape and strides over the same memory.


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

    def note_view(ctx, out: Tensor, args: tuple) -> None:
        """The way from the base to this view is one call, whatever views it was made from."""
        super().note_view(out, args)
        if out._base is not None:
            (x, size, stride, start, _), base = args, out._base.array
            start += offset_of(x.array) - offset_of(base)
            out._view_calls = ((type(ctx), (size, stride, start, steps_of(base))),)

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
    return function.apply(input, size, stride, first - here, steps_of(array))


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


# Writes with a name: a copy, and an assignment to the copy.


@tensor_method("index_fill")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with one number at the places `index` of dimension `dim`."""
    if index.array.ndim > 1:
        raise RuntimeError(f"index_fill: Index has to be a vector/scalar, it has {index.ndim} dims")
    ndim, dim = input.array.ndim, normalize_dim(dim, input.array.ndim)
    mask = zeros((input.array.shape or (1,))[dim], dtype=bool_, device=input.device)
    mask[index] = True  # once for each place, also where the index names it twice
    shape = (mask.array.size, *(1,) * (ndim - dim - 1))[:ndim]
    return masked_fill(input, reshape(mask, shape), value)


@tensor_method("index_copy")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` at the places `index` of dimension `dim`."""
    dims, index = line("index_copy", input, dim, index)
    check_source("index_copy", input, dims, index, source, IndexError)
    return IndexPut.apply(input, source, dims, index)


@tensor_method("index_put")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with out[indices] = values, or += where a place may come twice."""
    check_same_dtype("index_put", input, values)
    if accumulate:
        _, dims, places = parse(input, tuple(indices))
        values = expand(values, Index.apply(input.detach(), dims, *places).array.shape)
        return add(input, AddIndex.apply(values, input.array.shape, dims, *places))
    out = clone(input)
    out[tuple(indices)] = values
    return out


@tensor_method("masked_scatter")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the first elements of `source` where the mask is true; broadcast."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, got {mask.dtype!r}")
    check_same_dtype("masked_scatter", input, source)
    input, mask = broadcast_tensors(input, mask)
    out = clone(input)
    out[mask] = flatten(source)[: int(mask.array.sum())]
    return out


index_fill_, index_copy_, index_put_, masked_scatter_ = (
    tensor_method(f"{write.__name__}_")(in_place(write))
    for write in (index_fill, index_copy, index_put, masked_scatter)
)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)

    x = tensor([0.0, 1.0, 2.0, 3.0, 4.0], requires_grad=True)
    windows = x.as_strided((3, 3), (1, 1))
    print(windows.tolist())  # -> [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    print("the same memory:", windows.data_ptr() == x.data_ptr())  # -> the same memory: True
    print("unfold says the same:", x.unfold(0, 3, 1).tolist() == windows.tolist())
    # -> unfold says the same: True
    print("moving average:", x.unfold(0, 3, 1).mean(1).tolist())
    # -> moving average: [1.0, 2.0, 3.0]

    windows.sum().backward()
    print("how often each place is read:", x.grad.tolist())
    # -> how often each place is read: [1.0, 2.0, 3.0, 2.0, 1.0]
    x64 = tensor(np.arange(12.0).reshape(3, 4), requires_grad=True)
    for view in (
        lambda x: x.as_strided((2, 2, 2), (1, 0, 3)),
        lambda x: x.T.as_strided((2, 3), (4, 1), 1),
        lambda x: x.T.unfold(0, 3, 1),
    ):
        print(gradcheck(view, (x64,)), gradgradcheck(view, (x64,)))
        # -> True True
        # -> True True
        # -> True True

    # A write through a view: base, view and gradient agree.
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1
    every_second = y.as_strided((2,), (2,))
    every_second.mul_(10)
    print(y.tolist(), y._version, every_second._version)  # -> [10.0, 2.0, 30.0, 4.0] 1 1
    y.sum().backward()
    print(x.grad.tolist())  # -> [10.0, 1.0, 10.0, 1.0]

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
        except RuntimeError as error:
            return str(error).split(":")[0]
        return "allowed"

    y = x * 1
    print(refused(lambda: y.unfold(0, 2, 1).mul_(2)))
    # -> a view made by UnfoldToRead cannot be written in place where gradients are recorded
    print(refused(lambda: y[:1].as_strided((1,), (1,), 3).mul_(2)))
    # -> a view made by AsStridedToRead cannot be written in place where gradients are recorded
    print(refused(lambda: (x * 1).detach().unfold(0, 2, 2).mul_(2)))  # -> allowed
    print(y[:1].as_strided((1,), (1,), 3).tolist(), "was not in y[:1]")
    # -> [4.0] was not in y[:1]
    try:
        y.as_strided((3, 3), (1, 1))
    except RuntimeError as error:
        print(error)
        # -> as_strided: sizes [3, 3], strides [1, 1] need 20 bytes from a storage of size 16

    # Writes with a name. If a place comes twice, only accumulate=True counts both values.
    twice = tensor([1, 1])
    print(index_put(tensor([0, 0]), (twice,), tensor([5, 7]), accumulate=True).tolist())
    # -> [0, 12]
    print(tensor([0, 0, 0]).index_fill_(0, tensor([0, -1]), 3).tolist())  # -> [3, 0, 3]
    mask = tensor([True, False, True])
    print(masked_scatter(tensor([0, 0, 0]), mask, tensor([8, 9])).tolist())  # -> [8, 0, 9]
