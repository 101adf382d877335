"""Step reduce05: Sums of rows as a matrix product

A classifier sums along the last dimension all the time: a row of scores for each sample. NumPy
starts a new loop for each row, and this overhead weighs most where rows are short.

The sum of a row is also its product with ones:

    [x_1 x_2 ... x_n] @ [1 1 ... 1]  =  x_1 + x_2 + ... + x_n

Multiplying by 1 is wasted work. But matrix products are the best tuned code for a processor (the
library is called BLAS), and for short rows the product takes a fraction of the time. The demo
measures it.

Where the product is not better, the plain sum stays:

- Long rows: NumPy adds in pairs, and pairs of pairs, which loses fewer digits than adding one
  number after the other.
- Integers: there is no fast product of integers.
- Arrays that are not contiguous: BLAS would copy them first.

This is about NumPy's arrays. An array on a GPU has other fast ways. `singledispatch` chooses the
body by the type of the first argument: the plain one for all types, and one that is registered for
np.ndarray.

The trap: for a matrix of a few elements, the plain sum is faster than making the ones. So Sum uses
the product only above 1,000 elements.

Changed: Sum.forward. New: sum_rows, sum_rows_numpy.
Try: write `x.size > 0` in Sum.forward, and measure the row sums of a [2, 3] matrix.
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


if __name__ == "__main__":
    import timeit
    from functools import partial

    from tinytorch.core.tensor import tensor

    def seconds(function):
        return min(timeit.repeat(function, number=10, repeat=5))

    numpy_sum = sum_rows.dispatch(object)  # the body for all other types
    for n in (10, 100, 1000):
        rows = np.random.default_rng(0).random((1000, n), dtype=np.float32)
        plain, product = (seconds(partial(body, rows, False)) for body in (numpy_sum, sum_rows))
        print(f"rows of {n}: the product takes {product / plain:.2f} of the time")  # -> ...

    # The same sums, up to rounding, and in the same shapes.
    x = tensor(rows)
    exact = rows.sum(axis=-1, dtype=np.float64)
    print("close:", np.allclose(sum(x, -1).numpy(), exact), list(sum(x, -1, True).shape))
    # -> close: True [1000, 1]

    # What stays a plain sum: columns in memory, integers, long rows.
    print(np.array_equal(sum_rows(rows.T, True), rows.T.sum(axis=-1, keepdims=True)))  # -> True
    print(sum_rows(np.ones((2, 600), np.int32), False), sum_rows(rows.T, False).shape)
    # -> [600 600] (1000,)
    tenths = np.full((1, 1_000_000), 0.1, np.float32)
    one_by_one = np.cumsum(tenths, axis=-1)[0, -1]
    print(
        "one by one:",
        round(float(one_by_one), 1),
        " in pairs:",
        round(sum(tensor(tenths), 1).item(), 1),
    )
    # -> one by one: 100958.3  in pairs: 100000.0
