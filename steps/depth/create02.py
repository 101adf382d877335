"""Step create02: Checks of sizes, values and memory

In step create01, mistakes raise NumPy's errors: an OverflowError for full((2,), 300, dtype=int8), a
ValueError for a size of -1, and for 2^60 numbers a MemoryError, or again a ValueError: "array is
too big". A program written for PyTorch catches a RuntimeError.

So sizes are checked first. The value goes through `checked_number` (step compare08). And
`allocated` calls the array library, and translates the exception that it raises when there is not
enough memory. Each library has its own; ours is always a RuntimeError.

Zeros do not have to be written at all. The operating system provides pages of memory that are
already zero, and only when they are first touched. np.zeros makes use of that and takes no time,
where np.full writes each element.

The trap: the time is not saved, only postponed. The first write into such a page costs more. And a
tensor of zeros that is larger than the memory can be made, and fails later.

Changed: full. New: allocated.
Try: zeros(10**12), four terabytes. Does your machine refuse it?
"""

from collections.abc import Callable
from typing import Any

from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, number_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor, wrap
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


if __name__ == "__main__":
    import timeit

    from tinytorch.core.dtype import float16, int8

    def seconds(function):
        return min(timeit.repeat(function, number=1, repeat=3))

    n = 20_000_000
    ratio = seconds(lambda: full((n,), 0.5)) / seconds(lambda: zeros(n))
    print(f"{n} numbers: writing them takes {ratio:.0f} times as long as zeros")  # -> ...

    wrong = [
        lambda: zeros(2, -1),
        lambda: full((2,), 300, dtype=int8),
        lambda: full((2,), 1e6, dtype=float16),
        lambda: full((2,), "seven"),
        lambda: zeros(2**62),
    ]
    for call in wrong:
        try:
            call()
        except (RuntimeError, TypeError) as error:
            print(str(error).split(";")[0])
            # -> Trying to create tensor with negative dimension -1: (2, -1)
            # -> value cannot be converted to tinytorch.int8 without overflow: 300
            # -> value cannot be converted to tinytorch.float16 without overflow: 1000000.0
            # -> expected a Tensor or a number, not str
            # -> can't allocate memory: array is too big
    print(full((2,), float("inf")).tolist(), full((), -1, dtype=int8).item())  # -> [inf, inf] -1
