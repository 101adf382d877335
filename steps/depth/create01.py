"""Step create01: New tensors of a shape and a value

So far, a new tensor started as a list of Python numbers or as an array of NumPy's. A list of a
million zeros is read number by number: the demo measures it. A tensor that follows a rule needs no
list:

    full((2, 3), 7.5)   zeros(2, 3)   ones(2, 3)   empty(2, 3)

`full` makes the array where the tensor is to live: device.xp is NumPy, or the library of a GPU. The
other three are `full` with a fixed value. They take their sizes in two forms, zeros(2, 3) and
zeros((2, 3)), as PyTorch does.

Which type, if none is given? full takes the type of its value: 7 makes int64, True makes bool. The
other three make the default float type: floats are mostly added to them later.

A new tensor is a leaf (step 31b): `new_leaf` wraps the array and sets requires_grad, which has to
be a flag (step tensor09).

The trap: in PyTorch, a tensor from `empty` holds whatever was in that memory. Here it holds 0: a
program that reads it has a bug, and should have the same bug on every run.

Changed: the modules before are finished. New: new_leaf, full, constant_function, zeros, ones,
empty.
Try: full((2,), 7) / 2 and full((2,), 7.0, dtype=int64). Which type does each have?
"""

from collections.abc import Callable
from typing import Any

from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, number_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.arguments import as_shape


def new_leaf(array: Any, device: Any, requires_grad: bool | None) -> Tensor:
    """A new leaf around an array of `device`. As in PyTorch, None counts as False.

    Raises:
        TypeError: requires_grad is another value, such as 1.
    """
    leaf = wrap(array, device)
    if requires_grad is not None and requires_grad is not False:
        leaf.requires_grad_(requires_grad)
    return leaf


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
    """
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    device = as_device(device)
    dtype = number_dtype(fill_value) if dtype is None else as_dtype(dtype)
    array = device.xp.full(as_shape((size,)), fill_value, numpy_dtype(dtype))
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

    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    lists = [[0.0] * 1000] * 1000
    slow = min(timeit.repeat(lambda: tensor(lists), number=1, repeat=3))
    fast = min(timeit.repeat(lambda: zeros(1000, 1000), number=1, repeat=3))
    print(f"a million zeros from a list take {slow / fast:.0f} times as long")  # -> ...

    print(zeros(2, 3).tolist(), ones((2,)).tolist(), full((2, 2), 7.5).tolist())
    # -> [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]] [1.0, 1.0] [[7.5, 7.5], [7.5, 7.5]]
    print("no size:", ones(()).item(), " by name:", zeros(size=(1,)).tolist(), empty(2).tolist())
    # -> no size: 1.0  by name: [0.0] [0.0, 0.0]
    print(zeros(1).dtype, full((1,), 7).dtype, full((1,), True).dtype, ones(1, dtype=float64).dtype)
    # -> tinytorch.float32 tinytorch.int64 tinytorch.bool tinytorch.float64
    print("a tensor's value:", full((2,), tensor(3.5)).tolist())  # -> a tensor's value: [3.5, 3.5]
    w = ones(2, requires_grad=True)
    print("a leaf:", w.is_leaf, w.requires_grad, w.device)  # -> a leaf: True True cpu
    try:
        ones(2, requires_grad=1)
    except TypeError as error:
        print("1 is not a flag:", type(error).__name__)  # -> 1 is not a flag: TypeError
