"""Step reduce07: The standard deviation, and its gradient at 0

The standard deviation is the root of the variance. It has the unit of x: metres, not square metres.

    y = sqrt(var)          dy/dx_i = (x_i - m) / ((n - 1) y)

If all x_i are equal, y is 0 and the formula says 0 / 0. sqrt(var(x)) does just that: its gradient
is nan, and one nan in a gradient soon makes every weight nan. There is no derivative here: y is
like |x| at 0, and rises whichever way x_i moves. PyTorch takes 0, and so do we: y + (y == 0) is 1
where y is 0, and the deviation that is divided by it is 0.

Std is a subclass of Var. Its forward takes the root of Var's result, and its backward uses
`deviation` as Var's does.

The trap: a formula whose value is right at a point may still have a nan as its gradient there. The
value of sqrt(var(x)) is 0, as it should be; only training shows the nan.

`saves = 0, ~0`: x is kept, and the result (step node02).

New: Std, std.
Try: divide by y alone in Std.backward.
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
from tinytorch.ops.elementwise import opmath_type, stays_wide


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


def widened(function: type[Function], input: Tensor, *parameters: Any) -> Tensor:
    """function.apply, where float16 and bfloat16 are computed as float32 and rounded once."""
    dtype = input.dtype
    result = function.apply(cast(input, opmath_type(dtype)), *parameters)
    return result if result.dtype is dtype or stays_wide(function) else cast(result, dtype)


@functools.singledispatch
def sum_rows(x: Any, keepdims: bool) -> Any:
    """Sums along the last dimension."""
    return x.sum(axis=-1, keepdims=keepdims)


@sum_rows.register(np.ndarray)
def sum_rows_numpy(x: np.ndarray, keepdims: bool) -> np.ndarray:
    # A product with ones is the same sum, and BLAS takes a quarter of the time. Long rows are left
    # to NumPy, whose pairwise sums lose fewer digits.
    if x.shape[-1] > 4096 or x.dtype.kind != "f" or not x.flags.c_contiguous:
        return x.sum(axis=-1, keepdims=keepdims)
    return x @ np.ones((x.shape[-1], 1) if keepdims else x.shape[-1], x.dtype)


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
        if dims == (x.ndim - 1,) and x.size > 1000 and dtype is None and x.dtype.itemsize > 2:
            return sum_rows(x, keepdims)
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


class Var(Reduction):
    """y = sum (x_i - m)^2 / (n - c), m the mean of x;   dy/dx_i = 2 (x_i - m) / (n - c).

    The mean depends on x too, but its part of dy/dx_i is 0, as the x_i - m add up to 0.
    """

    saves = (0,)

    def forward(ctx, x: Any, dims: Any, keepdims: bool, correction: float) -> Any:
        ctx.begin(x, dims, keepdims)
        ctx.divisor = ctx.count() - correction
        ctx.save_for_backward(x)
        squares = ctx.call(Sum, ctx.xp.square(ctx.deviation(x)), dims, keepdims)
        return squares / ctx.divisor

    def deviation(ctx, x: Any) -> Any:
        return x - ctx.call(Sum, x, ctx.dims, True) / ctx.count()

    def backward(ctx, g: Any) -> Any:
        (x,) = ctx.saved
        return ctx.spread(g) * ctx.deviation(x) * 2 / ctx.divisor


class Std(Var):
    """y = sqrt(var);   dy/dx_i = (x_i - m) / ((n - c) y), and 0 where all x_i are the same."""

    saves = 0, ~0

    def forward(ctx, x: Any, dims: Any, keepdims: bool, correction: float) -> Any:
        y = ctx.xp.sqrt(super().forward(x, dims, keepdims, correction))
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        return ctx.spread(g / (y + (y == 0))) * ctx.deviation(x) / ctx.divisor


@reduction
def var(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: float = 1) -> Tensor:
    """The variance over `dim`: squared deviations divided by n - correction, by default n - 1."""
    return widened(Var, input, reduced_dims(dim, input.array.ndim), keepdim, correction)


@reduction
def std(input: Tensor, dim: Any = None, keepdim: bool = False, *, correction: float = 1) -> Tensor:
    """The standard deviation over `dim`, the root of `var`. Its gradient at 0 is 0."""
    return widened(Std, input, reduced_dims(dim, input.array.ndim), keepdim, correction)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float16, float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.elementwise import sqrt

    def gradient(function, *numbers):
        x = tensor(list(numbers), requires_grad=True)
        function(x).backward()
        return x.grad.tolist()

    print("std:", round(std(tensor([1.0, 2.0, 4.0])).item(), 4), gradient(std, 1.0, 2.0, 3.0))
    # -> std: 1.5275 [-0.5, 0.0, 0.5]
    print("all equal, sqrt of var:", gradient(lambda x: sqrt(var(x)), 2.0, 2.0))
    # -> all equal, sqrt of var: [nan, nan]
    print("all equal, std:", gradient(std, 2.0, 2.0))  # -> all equal, std: [0.0, 0.0]

    table = tensor([[1.0, 3.0], [2.0, 2.0]])
    print(
        "of each row:",
        std(table, 1, True).tolist(),
        " divided by n:",
        std(table, correction=0).item(),
    )
    # -> of each row: [[1.4142], [0.0]]  divided by n: 0.70711
    print("halves:", std(tensor([1.0, 2.0, 4.0], dtype=float16)).item())  # -> halves: 1.5273

    z = tensor([[0.3, -1.2, 2.0]], dtype=float64, requires_grad=True)
    print("to second order:", gradcheck(std, (z,)), gradgradcheck(std, (z,)))
    # -> to second order: True True
