"""Step reduce08: Too few numbers, and two ways to say the divisor

With n = 1, n - 1 is 0, and the variance is 0 / 0: nan, as in PyTorch. With n = 2 and correction=3,
step reduce07 divides by -1: the variance is negative, and its root is nan. In PyTorch the divisor
is at least 0, so here both are inf. (PyTorch's gradient along given dimensions still divides by
n - correction, and so does ours.)

PyTorch has two ways to say the divisor:

    correction=0        divides by n - 0; the default is 1
    unbiased=False      the older way, and the same as correction=0; var(x, False) means it too

In var(x, False), the False arrives as `dim`, where step reduce02 refuses a bool. So
`variance_or_deviation`, which serves both functions, looks for a bool there first. Giving both
options is an error. So is var(x, 0, 0), since 0 is not a flag, and a tensor of integers, whose
variance need not be an integer.

The trap is a std in a loss: with the default divisor it is nan for a batch of one sample.

Changed: Var.forward, var, std. New: variance_or_deviation.
Try: leave out the two lines about a bool, and compute var(x, False).
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
        n = ctx.count()
        # Where n < c, PyTorch divides by 0, but in backward along dimensions by n - c.
        ctx.divisor = max(n - correction, 0) if dims is None else n - correction
        ctx.save_for_backward(x)
        squares = ctx.call(Sum, ctx.xp.square(ctx.deviation(x)), dims, keepdims)
        return squares / max(n - correction, 0)

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


def variance_or_deviation(
    function: type[Var], input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> Tensor:
    """Var or Std, with PyTorch's two ways to say what to divide by: unbiased=False is correction=0.

    Raises:
        RuntimeError: `input` is of an integer type.
        TypeError: both `unbiased` and `correction` are given, or `unbiased` is not a bool.
    """
    if not input.is_floating_point():
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if isinstance(dim, bool):  # var(input, unbiased)
        dim, unbiased = None, dim
    if unbiased is not None:
        check_flag("unbiased", unbiased)
    if correction is None:
        correction = 0 if unbiased is False else 1
    elif unbiased is not None:
        raise TypeError("give `unbiased` or `correction`, not both")
    dims = reduced_dims(dim, input.array.ndim)
    return widened(function, input, dims, keepdim, correction)


@reduction
def var(
    input: Tensor, dim: Any = None, unbiased=None, keepdim: bool = False, *, correction=None
) -> Tensor:
    """The variance over `dim`: squared deviations divided by n - correction, by default n - 1.

    nan or inf where n <= correction.

    Raises:
        RuntimeError: `input` is of an integer type.
    """
    return variance_or_deviation(Var, input, dim, unbiased, keepdim, correction)


@reduction
def std(
    input: Tensor, dim: Any = None, unbiased=None, keepdim: bool = False, *, correction=None
) -> Tensor:
    """The standard deviation over `dim`, the root of `var`. Its gradient at 0 is 0."""
    return variance_or_deviation(Std, input, dim, unbiased, keepdim, correction)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    x = tensor([[1.0], [3.0]])
    print("of one:", var(x, 1).tolist(), " of two, less 3:", var(x, 0, correction=3).tolist())
    # -> of one: [nan, nan]  of two, less 3: [inf]

    # The ways to say the divisor.
    print(var(x, unbiased=False).item(), var(x, False).item(), var(x, correction=0).item())
    # -> 1.0 1.0 1.0
    for wrong in (
        lambda: var(x, unbiased=True, correction=1),
        lambda: var(x, 0, 0),
        lambda: std(tensor([1, 2])),
    ):
        try:
            wrong()
        except (TypeError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> TypeError: give `unbiased` or `correction`, not both
            # -> TypeError: var(): argument 'unbiased' must be bool, not 0
            # -> RuntimeError: std and var only support floating point and complex dtypes

    z = tensor([[0.3, -1.2, 2.0]], dtype=float64, requires_grad=True)
    print("to second order:", gradcheck(std, (z,)), gradgradcheck(std, (z,)))
    # -> to second order: True True
    print(var(z, unbiased=True).item() == var(z).item())  # -> True
