"""Step reduce02: Normalizing dim, and NumPy's names for it

sum(x, -1) adds up each row, as sum(x, 1) does: NumPy counts -1 from the end. `begin` does not. It
looks for 0 and 1 in (-1,), finds neither, and stores a wrong shape: forward works, and backward
stops with NumPy's error about a reshape that is not in the program. And for a dimension that does
not exist, NumPy raises an AxisError, and PyTorch an IndexError.

So `dim` is normalized before anything is computed: counted from the front, and refused if it does
not exist or appears twice. Some of the rules are conventions:

    dim=-1       the last one                  dim=()     all, like None
    dim=[0, -1]  several, as tuple or list     of a 0-d tensor, 0 and -1 are valid: it is one number

The second problem is a name. A backward formula runs on arrays, and on Tensors when its gradient is
to be differentiated (step 33). An array's sum takes `axis` and `keepdims`, PyTorch's takes `dim`
and `keepdim`: found.sum(axis=1, keepdims=True) works on one of the two only. So `reduction`, which
attaches our functions as methods, lets them take NumPy's names too. (So does PyTorch.)

The trap: True is an integer in Python, so sum(x, True) would be sum(x, 1). And 1 counts as true, so
sum(x, 0, 1), where (0, 1) was meant, would keep dimension 0. Both are refused: the first as a dim,
the second as a flag (step tensor09). All reductions go through `reduction`, so keepdim is checked
there.

Changed: reduced_dims, sum, mean. New: normalize_dim, normalize_dims, reduction.
Try: return dim, not dim + last, from normalize_dim, and see the first lines of the demo.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import arithmetic, comparison  # noqa: F401  (their operators)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.broadcast import Expand


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

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        ctx.begin(x, dims, keepdims)
        return x.sum(axis=dims, keepdims=keepdims)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, ctx.spread(g), ctx.shape)

    def name(ctx) -> str:  # PyTorch has a form without dimensions and one with them
        return f"{type(ctx).__name__}Backward{int(ctx.dims is not None)}"


class Mean(Sum):
    """y = (x_1 + ... + x_n) / n;   dy/dx_i = 1 / n."""

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        return super().forward(x, dims, keepdims) / ctx.count()

    def backward(ctx, g: Any) -> Any:
        return super().backward(g / ctx.count())


@reduction
def sum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum over `dim` (an int, several, or None for all), which is kept as 1 with keepdim."""
    return Sum.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


@reduction
def mean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean over `dim`."""
    return Mean.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.core.tensor import tensor

    for dims in ((-1,), reduced_dims(-1, 2)):
        x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        y = Sum.apply(x, dims) * tensor([1.0, 10.0])
        try:
            y.sum().backward()
            print(dims, x.grad.tolist())  # -> (1,) [[1.0, 1.0], [10.0, 10.0]]
        except ValueError as error:
            print(dims, error)  # -> (-1,) cannot reshape array of size 2 into shape (2,2)

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print(sum(x, -1).tolist(), sum(x, [0, -1]).item(), sum(x, ()).item())
    # -> [6.0, 15.0] 21.0 21.0
    print("0-d:", sum(tensor(3.0), -1).item(), mean(tensor(3.0), 0).item())  # -> 0-d: 3.0 3.0
    print("a NumPy integer:", mean(x, np.int64(1)).tolist())  # -> a NumPy integer: [2.0, 5.0]

    # One formula, on an array and on a Tensor.
    for each in (x.array, x):
        print(type(each).__name__, each.sum(axis=1, keepdims=True).tolist())
        # -> ndarray [[6.0], [15.0]]
        # -> Tensor [[6.0], [15.0]]

    for wrong in (
        lambda: sum(x, 2),
        lambda: sum(x, (1, -1)),
        lambda: sum(x, True),
        lambda: sum(x, 0, 1),
        lambda: x.mean(0, keepdims=1.0),
        lambda: sum([1.0, 2.0]),
    ):
        try:
            wrong()
        except (IndexError, RuntimeError, TypeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)
            # -> RuntimeError: a dim appears multiple times in the list of dims (1, -1)
            # -> TypeError: argument must be int, not bool
            # -> TypeError: sum(): argument 'keepdim' must be bool, not 1
            # -> TypeError: mean(): argument 'keepdim' must be bool, not 1.0
            # -> TypeError: sum(): argument 'input' (position 1) must be Tensor, not list
