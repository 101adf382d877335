"""Step reduce09: All and any

A training loop asks: is every sample of the batch right? Is there a nan? A comparison gives an
answer for each element. `all` and `any` make one answer of many, and are reductions of booleans:

    all    a_1 and a_2 and ... and a_n        of no elements: True
    any    a_1 or  a_2 or  ... or  a_n        of no elements: False

The answer jumps, so no gradient flows, and the result does not require one. Every element that is
not 0 counts as true, nan too. The class takes the method's name as a parameter, and the array
library does the rest.

Two conventions are PyTorch's. For uint8 the answer is uint8: PyTorch's booleans were of that type
once, and old masks still are. And dim=() means no dimension here, so that each element is tested
alone; for sum it means all of them.

The trap: `all` and `any` now hide Python's own in this module. all(x > 0 for x in xs), with a
generator, would raise. And `if x == y:` raises for more than one element (step compare01); most
programs need `if (x == y).all():`.

Changed: nothing. New: AllAny, tested_dims, all, any.
Try: always return reduced_dims(dim, ndim) from tested_dims, and see which line of the demo changes.
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


class AllAny(Function):
    """Whether "all" or "any" elements are true (not 0). The result is bool, or uint8 for uint8."""

    differentiable = False

    def forward(ctx, x: Any, method: str, dims: Any, keepdims: bool) -> Any:
        answer = getattr(x != 0, method)(axis=dims, keepdims=keepdims)
        return answer.astype(x.dtype) if x.dtype == np.uint8 else answer


def tested_dims(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """`reduced_dims`, but () means no dimension, as in PyTorch: each element is its own answer."""
    return () if isinstance(dim, (tuple, list)) and not dim else reduced_dims(dim, ndim)


@reduction
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements over `dim` are true (not 0): a bool tensor, for uint8 a uint8 one."""
    return AllAny.apply(input, "all", tested_dims(dim, input.array.ndim), keepdim)


@reduction
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any element over `dim` is true (not 0): a bool tensor, for uint8 a uint8 one."""
    return AllAny.apply(input, "any", tested_dims(dim, input.array.ndim), keepdim)


if __name__ == "__main__":
    from tinytorch.core.dtype import uint8
    from tinytorch.core.tensor import tensor

    # A loss over a batch: which samples are right, and are all of them?
    right = tensor([[True, True], [True, False]])
    print(
        "all:",
        all(right).item(),
        " per row:",
        all(right, 1).tolist(),
        list(all(right, 1, True).shape),
    )
    # -> all: False  per row: [True, False] [2, 1]
    print("any:", any(right).item(), " per column:", any(~right, 0).tolist())
    # -> any: True  per column: [False, True]

    x = tensor([1.0, float("nan"), -2.0], requires_grad=True)
    print("a nan among them:", any(x != x).item(), " requires grad:", any(x).requires_grad)
    # -> a nan among them: True  requires grad: False
    print("not 0:", all(x).item(), " of none:", all(tensor([])).item(), any(tensor([])).item())
    # -> not 0: True  of none: True False

    old_mask = tensor([[1, 0], [2, 0]], dtype=uint8)
    print(any(old_mask, 0).tolist(), any(old_mask).dtype)  # -> [1, 0] tinytorch.uint8
    print("no dimension:", any(old_mask, ()).tolist(), " all of them:", sum(old_mask, ()).item())
    # -> no dimension: [[1, 0], [1, 0]]  all of them: 3
