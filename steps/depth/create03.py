"""Step create03: New tensors like a given one

A function that works on the tensors of its caller does not know their type or device. zeros(2, 3)
in it makes float32 on the CPU, and for a float64 tensor on a GPU that is wrong twice. It needs a
tensor like a given one:

    zeros_like(x)          the shape, type and device of x
    x.new_zeros(2, 3)      the type and device of x, and a shape of its own

Both only fill in the options that the caller has not given. {"dtype": x.dtype, **options} says that
in one expression: later entries of a dictionary replace earlier ones.

The four functions differ only in the function that they call, so `like_function` makes them, and
`new_method` makes the five methods. new_tensor is one of these: x.new_tensor([1, 2]) is a tensor of
x's type. (Programs pass a memory_format, which is accepted: the new tensor is contiguous anyway.)

requires_grad is not taken from x: the new tensor requires grad only if the caller says so.

The trap: a tensor on the wrong device is noticed at once, since an operation on two devices raises.
One of the wrong type is not: float32 and float64 make float64, silently.

New: like_function, zeros_like, ones_like, empty_like, full_like; new_method; the methods new_zeros,
new_ones, new_empty, new_full, new_tensor.
Try: exchange the order in new_method: {**options, "dtype": self.dtype, ...}.
"""

from collections.abc import Callable
from typing import Any

from tinytorch.core.arguments import checked
from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, number_dtype, numpy_dtype
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


if __name__ == "__main__":
    from tinytorch.core.dtype import bool_, float64
    from tinytorch.ops import arithmetic  # noqa: F401  (the operators)

    x = tensor([[1.0, 2.0]], dtype=float64, requires_grad=True)

    # A function that makes its constant without looking, and one that looks.
    print((x.detach() + ones(1)).dtype, (tensor([1.0]) + x.new_ones(1)).dtype, ones_like(x).dtype)
    # -> tinytorch.float64 tinytorch.float64 tinytorch.float64
    print(zeros_like(x).tolist(), full_like(x, 3).tolist(), list(empty_like(x).shape))
    # -> [[0.0, 0.0]] [[3.0, 3.0]] [1, 2]
    print(
        "options win:",
        zeros_like(x, dtype=bool_).tolist(),
        ones_like(x, requires_grad=True).requires_grad,
    )
    # -> options win: [[False, False]] True
    print("without the option:", ones_like(x).requires_grad)  # -> without the option: False

    print(x.new_zeros(2, 2).tolist(), x.new_full((2,), 3).tolist(), x.new_tensor([1, 2]).dtype)
    # -> [[0.0, 0.0], [0.0, 0.0]] [3.0, 3.0] tinytorch.float64
    print(
        list(x.new_empty((3,)).shape), x.new_zeros(1, dtype=bool_).tolist(), Tensor.new_ones.__doc__
    )
    # -> [3] [False] ones() with this tensor's type and device.
