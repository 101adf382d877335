"""New tensors: filled, counted, like another one; and old ones filled anew."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import check_writable, overwrite
from tinytorch.core.arguments import checked
from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, bool_, int64, number_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor, as_tensor, tensor, tensor_method, wrap
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.broadcast import expand
from tinytorch.ops.conversion import to
from tinytorch.ops.scalar import checked_number


def new_leaf(array: Any, device: Any, requires_grad: bool | None) -> Tensor:
    """A new leaf around an array of `device`. As in PyTorch, None counts as False.

    Raises:
        TypeError: requires_grad is another value, such as 1.
    """
    leaf = wrap(array, device)
    if requires_grad is not None and requires_grad is not False:
        leaf.requires_grad_(requires_grad)
    return leaf


def allocated(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), of an array library, which takes new memory.

    Raises:
        RuntimeError: there is not as much.
    """
    try:
        return function(*args)
    except (MemoryError, ValueError, OverflowError) as error:  # ValueError: not even an address
        raise RuntimeError(f"can't allocate memory: {error}") from error


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of shape `size` with `fill_value` everywhere. Without `dtype` its type is that of
    the value: bool, int64 or the default float type.

    Raises:
        RuntimeError: a size is negative, or there is not as much memory.
    """
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    shape = as_shape((size,))
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {shape}")
    device = as_device(device)
    dtype = number_dtype(fill_value) if dtype is None else as_dtype(dtype)
    if type(fill_value) is int and fill_value == 0:  # new pages of memory are zero already
        array = allocated(device.xp.zeros, shape, numpy_dtype(dtype))
    else:
        fill_value = checked_number(fill_value, dtype)
        array = allocated(device.xp.full, shape, fill_value, numpy_dtype(dtype))
    return new_leaf(array, device, requires_grad)


def constant_function(name: str, value: float) -> Callable[..., Tensor]:
    """Makes zeros, ones and empty, which differ only in the value."""

    def create(*sizes: Any, size: Any = None, dtype: DType | None = None, **options: Any) -> Tensor:
        dtype = Defaults.dtype if dtype is None else dtype
        return full(as_shape(sizes) if size is None else size, value, dtype=dtype, **options)

    create.__name__ = create.__qualname__ = name
    create.__code__ = create.__code__.replace(co_name=name)  # for messages and tracebacks
    create.__doc__ = f"""{name}(2, 3) or {name}((2, 3)): a new tensor of that shape, of the default
    float type unless `dtype` says otherwise; options as of `full`. RuntimeError for negative sizes.
    """
    return create


zeros = constant_function("zeros", 0)
ones = constant_function("ones", 1)
# PyTorch leaves new memory as it is. Here it is zero, so that each run gives the same result.
empty = constant_function("empty", 0)


def like_function(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Makes zeros_like of zeros, and so on."""

    def create_like(input: Tensor, *args: Any, memory_format: Any = None, **options: Any) -> Tensor:
        options = {"dtype": input.dtype, "device": input.device, **options}
        return create(input.array.shape, *args, **options)

    create_like.__name__ = create_like.__qualname__ = f"{create.__name__}_like"
    create_like.__doc__ = f"""`{create.__name__}` in the shape of `input`, and with its type and
    device unless the options name others. Whatever the memory_format, the result is contiguous."""
    return checked(create_like)


zeros_like, ones_like, empty_like, full_like = map(like_function, (zeros, ones, empty, full))


def new_method(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """x.new_zeros(2, 3) is zeros(2, 3) with the type and on the device of x."""

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        return create(*args, **{"dtype": self.dtype, "device": self.device, **options})

    method.__doc__ = f"{create.__name__}() with this tensor's type and device."
    return method


new_zeros = tensor_method("new_zeros")(new_method(zeros))
new_ones = tensor_method("new_ones")(new_method(ones))
new_empty = tensor_method("new_empty")(new_method(empty))
new_full = tensor_method("new_full")(new_method(full))
new_tensor = tensor_method("new_tensor")(new_method(tensor))


def eye(n: int, m: int | None = None, *, dtype: DType | None = None, **options: Any) -> Tensor:
    """The [n, m] matrix with ones on the diagonal; m defaults to n.

    Raises:
        RuntimeError: n or m is negative, or there is not as much memory.
    """
    n, m = as_integer(n), as_integer(n if m is None else m)
    if min(n, m) < 0:
        raise RuntimeError(f"n and m must be greater or equal to 0, got {n} and {m}")
    return tensor(
        allocated(np.eye, n, m), dtype=Defaults.dtype if dtype is None else dtype, **options
    )


def python_number(number: Any) -> Any:
    """A number of Python's, also from a tensor of one element or from NumPy, whose small integers
    would wrap around: np.uint8(0) - np.uint8(10) is 246."""
    return number.item() if isinstance(number, (Tensor, np.generic)) else number


def arange(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... up to but without `end`: a tensor of ceil((end - start) / step)
    elements, int64 if all three are integers, else the default float type.

    Raises:
        RuntimeError: the step is zero or leads away from `end`, or an integer needs 65 bits.
        NotImplementedError: for booleans.
    """
    start, end = (0, start) if end is None else (start, end)
    start, end, step = map(python_number, (start, end, step))
    if dtype is bool_:
        raise NotImplementedError("arange() is not implemented for tinytorch.bool")
    if dtype is int64 and math.isfinite(start) and math.isfinite(end):
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) / step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: {start} -> {end} by {step}"
        )
    if dtype is None:
        whole = not any(number_dtype(x).is_floating_point for x in (start, end, step))
        dtype = int64 if whole else Defaults.dtype
    # Counts and computes in float64, or exactly for integers, and casts at the end.
    count = -((start - end) // step) if dtype is int64 else math.ceil((end - start) / step)
    if not dtype.is_floating_point:
        start, step = int(start), int(step)
        for number in (start, step, int(end)):
            checked_number(number, int64)
    device = as_device(device)
    values = allocated(device.xp.arange, int(count))
    values = values if (start, step) == (0, 1) else start + step * values
    return new_leaf(values.astype(numpy_dtype(dtype), copy=False), device, requires_grad)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: DType | None = None, **options: Any
) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, at equal distances.

    Raises:
        RuntimeError: `steps` is negative or needs more memory than there is, or an end does not fit
            the type.
    """
    steps = as_integer(steps)
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    start, end = python_number(start), python_number(end)
    dtype = Defaults.dtype if dtype is None else as_dtype(dtype)
    ends = checked_number(start, dtype), checked_number(end, dtype)
    if not dtype.is_floating_point:
        start, end = ends
    # Counts from both ends towards the middle, so that both are exact.
    step, half = (end - start) / max(steps - 1, 1), max(steps // 2, 1)
    values = start + step * allocated(np.arange, steps)
    values[half:] = end - step * np.arange(steps - 1 - half, -1, -1)
    return tensor(values, dtype=dtype, **options)


@checked
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Each 1-D tensor as a view in the shape of the grid that they span together.

    indexing="ij" counts rows first, "xy" is for pictures: the first tensor runs along the columns.
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", got: {indexing}')
    if any(x.array.ndim > 1 for x in tensors):
        raise RuntimeError("meshgrid: expected 0D or 1D tensors only")
    n = len(tensors)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else range(n)
    xs = (
        x.reshape([1] * i + [-1] + [1] * (n - 1 - i)) for x, i in zip(tensors, order, strict=True)
    )
    shape = [tensors[i].numel() for i in order]
    return tuple(expand(x, shape) for x in xs)


@tensor_method("copy_")
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copies `src`, broadcast and cast to this tensor's shape, type and device, into its memory.

    The gradient flows to `src`; the old elements have no part in the result.
    """
    check_writable(self)
    src = to(as_tensor(src), device=self.device, dtype=self.dtype)
    return overwrite(self, expand(src, self.array.shape))


@tensor_method("fill_")
def fill_(self: Tensor, value: Any) -> Tensor:
    """Writes one number, or the element of a 0-d tensor, everywhere."""
    if isinstance(value, Tensor):
        if value.array.ndim:
            raise RuntimeError(f"fill_ only supports a 0-d value, got {value.ndim} dimensions")
        return copy_(self, value)
    check_writable(self)
    return overwrite(self, checked_number(value, self.dtype))


@tensor_method("zero_")
def zero_(self: Tensor) -> Tensor:
    """Writes zero everywhere."""
    return fill_(self, 0)
