"""Step reduce04: Sums of halves in the package's dress: the mean

Step 61f adds halves up as float32 and rounds once: in float16 a sum of ones stops at 2,048. Here
`wide` converts for all reductions. (A type of 2 bytes that is not an integer is float16 or
bfloat16.)

The trap is where the mean divides. 60,000 + 60,000 is inf in float16, whose largest number is
65,504, but the mean, 60,000, fits. So Mean.forward widens before it sums, and rounds after it has
divided.

Changed: Sum.forward, Mean.forward. New: wide.
Try: call super().forward(x, ...) in Mean.forward. Which line of the demo changes?
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.dtype import DType, as_dtype, int64, numpy_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import arithmetic, comparison  # noqa: F401  (their operators)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.broadcast import Expand
from tinytorch.ops.conversion import cast


def normalize_dim(dim: int, ndim: int) -> int:
    """`dim` as a Python integer counted from the front: -1 is the last one. NumPy integers are
    accepted.

    A 0-d tensor is treated as if it had one dimension: 0 and -1 are valid.

    Raises:
        IndexError: there is no such dimension.
        TypeError: `dim` is not an integer.
    """
    dim, last = dim if type(dim) is int else as_integer(dim), ndim or 1
    if -last <= dim < last:
        return dim + last if dim < 0 else dim
    raise IndexError(
        f"Dimension out of range (expected to be in range of [{-last}, {last - 1}], but got {dim})"
    )


def normalize_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Each of `dims` (one, or several) counted from the front.

    Raises:
        RuntimeError: a dimension is named twice.
    """
    dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    result = tuple(normalize_dim(dim, ndim) for dim in dims)
    if len(set(result)) != len(result):
        raise RuntimeError(f"a dim appears multiple times in the list of dims {dims}")
    return result


NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def reduction(function: Callable) -> Callable:
    """Attaches an operation to Tensor under its own name, and lets it take `axis` and `keepdims`,
    NumPy's names for `dim` and `keepdim`: a formula that uses them runs on arrays and on
    Tensors.

    A call raises TypeError if `keepdim` is neither True nor False.
    """
    names = [*inspect.signature(function).parameters][1:]  # without `input`
    place = names.index("keepdim") if "keepdim" in names else len(names)

    @tensor_method(function.__name__)
    @functools.wraps(function)
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {NUMPY_NAMES.get(name, name): value for name, value in kwargs.items()}
            check_flag("keepdim", kwargs.get("keepdim", False), function.__name__)
        if len(args) > place:
            check_flag("keepdim", args[place], function.__name__)
        return function(input, *args, **kwargs)

    return call


def reduced_dims(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """The dimensions that `dim` names, counted from the front; None, for all, if it is None or ().

    Errors as of `normalize_dims`.
    """
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return None
    dims = normalize_dims(dim, ndim)
    return dims if ndim else ()  # a 0-d tensor has nothing to sum over


def wide(x: Any) -> Any:
    """float16 and bfloat16 as float32, in which they are summed; other types as they are."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


class Reduction(Function):
    """Base of the reductions: one result for all elements along some dimensions.

    `dims` are counted from the front, None for all; `keepdims` keeps them, of size 1.
    """

    def begin(ctx, x: Any, dims: tuple[int, ...] | None, keepdims: bool) -> None:
        """Saves the shapes for backward."""
        ctx.shape, ctx.dims, ctx.kept = x.shape, dims, None
        if dims is not None and not keepdims:
            ctx.kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))

    def count(ctx) -> int:
        """The number of elements that become one."""
        return math.prod(ctx.shape if ctx.dims is None else [ctx.shape[dim] for dim in ctx.dims])

    def spread(ctx, value: Any) -> Any:
        """A result, or its gradient, in a shape that broadcasts against the input."""
        return value if ctx.kept is None else value.reshape(ctx.kept)


class Sum(Reduction):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: each element gets the gradient of the sum."""

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        ctx.begin(x, dims, keepdims)
        total = wide(x).sum(axis=dims, keepdims=keepdims, dtype=dtype)
        return total.astype(dtype or x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, ctx.spread(g), ctx.shape)

    def name(ctx) -> str:  # PyTorch has a form without dimensions and one with them
        return f"{type(ctx).__name__}Backward{int(ctx.dims is not None)}"


class Mean(Sum):
    """y = (x_1 + ... + x_n) / n;   dy/dx_i = 1 / n."""

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        return (super().forward(wide(x), dims, keepdims) / ctx.count()).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return super().backward(g / ctx.count())


def summands(input: Tensor, dtype: DType | None) -> tuple[Tensor, np.dtype | None]:
    """The input of a sum or product as `dtype`, and for integers the type to add in: `dtype` or
    int64, so that a sum of small integers does not overflow."""
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    return input, None if input.is_floating_point() else numpy_dtype(as_dtype(dtype or int64))


@reduction
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim` (an int, several, or None for all), which is kept as 1 with keepdim.

    Integers and booleans are added as int64; `dtype` converts before adding.
    """
    dims = reduced_dims(dim, input.array.ndim)
    input, total = summands(input, dtype)
    return Sum.apply(input, dims, keepdim, total)


@reduction
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `dim`.

    Raises:
        RuntimeError: the type is an integer type, and `dtype` does not name a float type.
    """
    dims = reduced_dims(dim, input.array.ndim)
    input, integer = summands(input, dtype)
    if integer is not None:
        raise RuntimeError(f"mean(): input dtype must be floating point. Got: {input.dtype!r}")
    return Mean.apply(input, dims, keepdim)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.core.dtype import float16
    from tinytorch.core.tensor import tensor

    ones = np.ones((4096, 2), np.float16)
    print("NumPy:", ones.sum(0))  # -> NumPy: [2048. 2048.]
    print("ours:", sum(tensor(ones), 0).tolist(), sum(tensor(ones), 0).dtype)
    # -> ours: [4096.0, 4096.0] tinytorch.float16
    print("added as integers:", sum(tensor([100, 200])).item())  # -> added as integers: 300

    # The mean of numbers whose sum is inf in float16.
    large = np.array([60_000, 60_000], np.float16)
    print("sum and mean:", sum(tensor(large)).item(), mean(tensor(large)).item())
    # -> sum and mean: inf 60000.0

    # The gradient has the type of x.
    x = tensor([1.0, 2.0], dtype=float16, requires_grad=True)
    mean(x).backward()
    print(x.grad.tolist(), x.grad.dtype)  # -> [0.5, 0.5] tinytorch.float16
