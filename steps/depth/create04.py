"""Step create04: arange: counting in steps

    arange(5)         0, 1, 2, 3, 4             up to the end, without it
    arange(10, 0, -4)      10, 6, 2             downwards

It stops before `end`, as Python's range does, and takes floats as well. The number of elements is
(end - start) / step, rounded up. Then element i is start + i * step: computed, and not added up, so
that errors do not pile up.

The trap is the rounding. (1.3 - 1) / 0.1 is 3.0000000000000004 in floating point. So arange(1, 1.3,
0.1) has four elements, and the last one is the 1.3 that should not be there. PyTorch does the same.
If the number of elements matters, state it: linspace, in the next step.

Integers are counted exactly: above 2^53 a float64 skips some. If start, end and step are integers,
the result is int64; else the default float type. Floats are computed in float64 and cast at the
end, so that float32 gets the nearest number.

Errors are a step of 0, a step in the wrong direction, an infinite end, and 2^63, which does not fit
int64.

NumPy's numbers become Python's first: np.uint8(0) - np.uint8(10) is 246, not -10.

(For arange(n), the multiplication is left out.)

New: arange, python_number.
Try: write math.floor in place of math.ceil.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, bool_, int64, number_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.ops.arguments import as_shape
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


if __name__ == "__main__":
    from tinytorch.core.dtype import float64, int8

    print(arange(5).tolist(), arange(2, 5).tolist(), arange(10, 0, -4).tolist())
    # -> [0, 1, 2, 3, 4] [2, 3, 4] [10, 6, 2]
    print(
        arange(3).dtype,
        arange(3.0).dtype,
        arange(3, dtype=float64).dtype,
        arange(3, dtype=int8).dtype,
    )
    # -> tinytorch.int64 tinytorch.float32 tinytorch.float64 tinytorch.int8
    print(
        arange(0, 1, 0.25).tolist(), arange(tensor(2)).tolist(), arange(2.9, dtype=int64).tolist()
    )
    # -> [0.0, 0.25, 0.5, 0.75] [0, 1] [0, 1]

    small = [np.uint8(n) for n in (0, 10, 2)]
    print("NumPy's numbers:", arange(*small).tolist())  # -> NumPy's numbers: [0, 2, 4, 6, 8]

    print("the trap:", (1.3 - 1) / 0.1)  # -> the trap: 3.0000000000000004
    print(arange(1, 1.3, 0.1, dtype=float64).numpy().round(3))  # -> [1.  1.1 1.2 1.3]
    large = 2**53
    print("exact:", (arange(large, large + 3).array - large).tolist())  # -> exact: [0, 1, 2]
    by_ones = np.cumsum(np.full(10_000, 0.1, np.float32))[-1]
    print(f"added up: {by_ones:.3f}, computed: {arange(0.1, 1000.05, 0.1).tolist()[-1]:.3f}")
    # -> added up: 999.903, computed: 1000.000

    wrong = [
        lambda: arange(0, 1, 0),
        lambda: arange(1, 0, 1),
        lambda: arange(math.inf),
        lambda: arange(2**63, 2**63 + 2),
        lambda: arange(2, dtype=bool_),
    ]
    for call in wrong:
        try:
            call()
        except RuntimeError as error:  # NotImplementedError is one
            print(error)
            # -> step must be nonzero
            # -> upper bound and lower bound inconsistent with step sign: 1 -> 0 by 1
            # -> unsupported range: 0 -> inf
            # -> value cannot be converted to tinytorch.int64 without overflow: 9223372036854775808
            # -> arange() is not implemented for tinytorch.bool
