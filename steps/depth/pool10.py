"""Step pool10: Adaptive pooling: a matrix for each dimension

A linear layer behind pictures needs a fixed number of weights. For another size of image there are
more pixels, and the network fails. So let the layer say what it wants, 3 x 3 windows for whatever
comes, and compute the windows from that. Of n pixels and `out` windows, window i has

    from  i n / out, rounded down,  to  (i + 1) n / out, rounded up

7 pixels and 3 windows: 0-2, 2-4, 4-6. They overlap, and for other numbers some are longer than
others. So strided views are of no use.

The mean of a window is a weighted sum of all pixels, with the weights 1 / length inside and 0
outside. All windows together are a matrix, [out, n], and each dimension has its own:

    y = A x B^T          A for the rows, B for the columns

Most entries of these matrices are 0, and multiplying by them is wasted work. But BLAS is so fast
that pictures of the usual sizes lose nothing (7 x 7 to 3 x 3 takes a third of PyTorch's time). And
the gradient is there: the product has one. The same function will enlarge images.

The trap: 0 * inf is nan. An infinite pixel spoils its whole row, not only its windows.

Most networks ask for one window, the mean of the whole picture: that is `mean`.

New: adaptive_windows, apply_matrices, adaptive_avg_pool (PyTorch: adaptive_avg_pool2d).
Try: adaptive_avg_pool2d(image, 9), for an image with fewer pixels.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import allocated
from tinytorch.ops.elementwise import opmath_type


class Windows(NamedTuple):
    """The windows of an array, as pairs of keys (outputs, inputs), one for each place in a window.

    x[inputs] is a strided view that holds the element at this place of every window, except of
    those that have it in the padding: they are not among the `outputs`.
    """

    sizes: tuple[int, ...]  # of the output
    parts: list[tuple[tuple, tuple]]
    overlap: bool


def window_slices(n: int, out: int, k: int, stride: int, pad: int, dilation: int) -> Iterator:
    """For each place t in a window of k, in one dimension: (outputs, inputs) as two slices.

    Output o sees input o * stride + t * dilation - pad, if that is in 0..n-1.
    """
    for t in range(k):
        start = t * dilation - pad
        first = max(0, -(start // stride))
        last = max(first, min(out, (n - 1 - start) // stride + 1))
        stop = max(0, start + (last - 1) * stride + 1)  # below 0 it would count from the end
        yield slice(first, last), slice(start + first * stride, stop, stride)


def join_dims(dims: Iterable[Iterable]) -> list[tuple[tuple, tuple]]:
    """The pairs of keys in several dimensions: one for each combination of places, in the order in
    which the elements of a window are read."""
    places = itertools.product(*dims)
    return [tuple((..., *keys) for keys in zip(*place, strict=True)) for place in places]


class MaxPool(Function):
    """y = the largest x of each window, and, with `indices`, its place in x.

    The first of equal ones gets the gradient. A window that holds a nan gives nan.
    """

    saves = (None,)

    def forward(ctx, x: Any, windows: Windows, indices: bool) -> Any:
        xp, ctx.shape, ctx.windows = ctx.xp, x.shape, windows
        low = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf
        y = xp.full_like(x, low, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        (outputs, inputs), *others = windows.parts
        y[outputs] = x[inputs]
        if not indices and not any(ctx.needs_input_grad):
            for outputs, inputs in others:
                xp.maximum(y[outputs], x[inputs], out=y[outputs])
            return y
        # The number of the part that each maximum comes from: a byte, where PyTorch keeps eight.
        choice = xp.zeros_like(y, dtype=np.uint8 if len(others) < 256 else np.int32)
        scratch = xp.empty_like(y)
        for number, (outputs, inputs) in enumerate(others, 1):
            best, seen, chosen = y[outputs], scratch[outputs], choice[outputs]
            seen[...] = x[inputs]  # it is read twice, which takes longer with a stride
            xp.maximum(chosen, (seen > best).astype(choice.dtype) * number, out=chosen)
            xp.maximum(best, seen, out=best)
        ctx.save_for_backward(choice)
        if not indices:
            return y
        plane = x.shape[-len(windows.sizes) :]
        places = xp.broadcast_to(xp.arange(math.prod(plane)).reshape(plane), x.shape)
        return y, ctx.call(SumWindows, places, windows, choice)

    def backward(ctx, g: Any, _: Any = None) -> Any:
        return ctx.call(SpreadWindows, g, ctx.shape, ctx.windows, ctx.saved[0])


class SumWindows(Function):
    """y = the sum of each window of x; with `choice`, of each window the element of that number."""

    saves = (2,)

    def forward(ctx, x: Any, windows: Windows, choice: Any = None) -> Any:
        ctx.shape, ctx.windows = x.shape, windows
        ctx.save_for_backward(choice)
        y = ctx.xp.zeros_like(x, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        for number, (outputs, inputs) in enumerate(windows.parts):
            seen = x[inputs]
            y[outputs] += seen if choice is None else seen * (choice[outputs] == number)
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SpreadWindows, g, ctx.shape, ctx.windows, ctx.saved[0])


class SpreadWindows(Function):
    """The adjoint of SumWindows: each element of x is added to all elements of its window, or to
    the one of the number `choice`."""

    saves = (3,)

    def forward(ctx, x: Any, shape: tuple, windows: Windows, choice: Any = None) -> Any:
        ctx.windows = windows
        ctx.save_for_backward(choice)
        y = ctx.xp.zeros_like(x, shape=shape)
        for number, (outputs, inputs) in enumerate(windows.parts):
            factor = 1 if choice is None else choice[outputs] == number
            if windows.overlap:
                y[inputs] += x[outputs] * factor
            else:
                ctx.xp.multiply(x[outputs], factor, out=y[inputs])
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumWindows, g, ctx.windows, ctx.saved[0])


def for_each_dim(value: Any, ndim: int) -> tuple[Any, ...]:
    """`value` as a tuple with an entry for each dimension: 2 and (2,) stand for (2, 2).

    Raises:
        RuntimeError: there is another number of entries.
        TypeError: an entry is neither an integer nor None.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = tuple([n if n is None or type(n) is int else as_integer(n) for n in values])
    if len(values) not in (1, ndim):
        raise RuntimeError(f"expected one number or {ndim}, got {len(values)}")
    return values * ndim if len(values) == 1 else values


def plane_of(ndim: int, input: Tensor) -> tuple[int, ...]:
    """The last `ndim` sizes of an input [channels, ...] or [batch, channels, ...].

    Raises:
        RuntimeError: it has another number of dimensions, or a size other than the batch is 0.
    """
    shape = input.array.shape
    if not 1 <= len(shape) - ndim <= 2 or 0 in shape[-ndim - 1 :]:
        raise RuntimeError(
            f"expected a {ndim + 1}D or {ndim + 2}D input with elements, got {shape}"
        )
    return shape[-ndim:]


@functools.lru_cache
def pooling_windows(plane: tuple, ceil_mode: bool, *options: tuple) -> tuple[Windows, list]:
    """The windows, and the arguments of `window_slices` for each dimension.

    options: kernel, stride, padding and dilation, each with an entry for each dimension.

    Raises:
        RuntimeError: the numbers do not fit each other.
    """
    dims = []
    for n, k, s, p, d in zip(plane, *options, strict=True):
        reach = d * (k - 1) + 1
        out = (n + 2 * p - reach + (s - 1) * ceil_mode) // max(s, 1) + 1
        out -= ceil_mode and (out - 1) * s >= n + p  # a window never begins behind the input
        if min(k, s, d, out) <= 0 or not 0 <= p <= reach // 2:
            raise RuntimeError(
                f"no windows in size {n} with kernel {k}, stride {s}, padding {p} (at most half a "
                f"kernel), dilation {d}"
            )
        dims.append((n, out, k, s, p, d))
    parts = join_dims(window_slices(*each) for each in dims)
    overlap = any(d * (k - 1) >= s for _, _, k, s, _, d in dims)
    return Windows(tuple(each[1] for each in dims), parts, overlap), dims


def windows_of(ndim: int, input: Tensor, ceil_mode: bool, *options: Any) -> tuple[Windows, list]:
    """`pooling_windows` from arguments as people write them: no stride means that of the kernel."""
    check_flag("ceil_mode", ceil_mode)
    kernel, stride, *others = options
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        stride = kernel
    values = [for_each_dim(value, ndim) for value in (kernel, stride, *others)]
    return pooling_windows(plane_of(ndim, input), ceil_mode, *values)


def window_counts(n: int, out: int, k: int, stride: int, pad: int, include_pad: bool) -> list[int]:
    """How many elements each window has in one dimension, with or without those of the padding.
    What lies behind the padding, in ceil_mode, never counts."""
    low, high = (-pad, n + pad) if include_pad else (0, n)
    starts = [o * stride - pad for o in range(out)]
    return [min(start + k, high) - max(start, low) for start in starts]


def avg_pool(
    ndim: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window; `stride`, `padding` and `ceil_mode` as in max pooling.

    Args:
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: divide the sums by this number instead.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    check_flag("count_include_pad", count_include_pad)
    windows, dims = windows_of(ndim, input, ceil_mode, kernel_size, stride, padding, 1)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    x = cast(input, opmath_type(input.dtype))
    counts = [window_counts(*each[:5], count_include_pad) for each in dims]
    divisor = divisor_override or math.prod(each[0] for each in counts)
    if divisor_override is None and any(len(set(each)) > 1 for each in counts):
        sizes = functools.reduce(np.multiply.outer, counts)
        divisor = tensor(sizes, dtype=x.dtype, device=x.device)
    return cast(SumWindows.apply(x, windows) / divisor, input.dtype)


def max_pool(
    nd,
    input,
    kernel_size,
    stride=None,
    padding=0,
    dilation=1,
    ceil_mode=False,
    return_indices=False,
) -> Any:
    """The largest element of each window.

    Args:
        stride: the distance of the windows, by default `kernel_size`.
        padding: how many places around the input count as minus infinity.
        dilation: the distance of the elements in a window.
        ceil_mode: a last window may reach beyond the end.
        return_indices: also return where in its plane, counted row by row, each maximum was.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    windows, _ = windows_of(nd, input, ceil_mode, kernel_size, stride, padding, dilation)
    return MaxPool.apply(input, windows, return_indices)


def adaptive_windows(ndim: int, input: Tensor, output_size: Any) -> list[tuple[Any, Any]]:
    """For each dimension where `output_size` windows begin, and where they end. They cover it, and
    their sizes are as equal as possible. None keeps the size.

    Raises:
        RuntimeError: a size is negative, the input has another number of dimensions, or there is
            not as much memory.
        ValueError: the input has no dimension of channels, and there is a size for each of the
            others.
    """
    if ndim > 1 and isinstance(output_size, (tuple, list)) and input.array.ndim <= ndim:
        raise ValueError(f"Input dimension should be at least {ndim + 1}, got {input.shape}")
    plane, sizes = plane_of(ndim, input), for_each_dim(output_size, ndim)
    sizes = [n if size is None else size for n, size in zip(plane, sizes, strict=True)]
    if min(sizes) < 0:
        raise RuntimeError(f"elements of output_size must be greater than or equal to 0: {sizes}")
    allocated(np.empty, (*input.array.shape[:-ndim], *sizes), input.array.dtype)
    counts = [(n, size, allocated(np.arange, size)) for n, size in zip(plane, sizes, strict=True)]
    return [(i * n // size, -(-(i + 1) * n // size)) for n, size, i in counts]


def apply_matrices(x: Tensor, matrices: list[np.ndarray]) -> Tensor:
    """x with each of its last dimensions multiplied by a matrix [new size, old size].

    Every element meets every other of its row: an inf or nan makes the whole row nan.

    Raises:
        NotImplementedError: x is not of a float type.
    """
    if not x.is_floating_point():
        raise NotImplementedError(f"a weighted mean is not implemented for {x.dtype!r}")
    dtype, x = x.dtype, cast(x, opmath_type(x.dtype))
    for dim, matrix in enumerate(matrices, x.ndim - len(matrices)):
        m, shape = tensor(matrix, dtype=x.dtype, device=x.device), x.array.shape
        if dim == x.ndim - 1:
            x = x @ m.T
        else:  # the dimensions behind this one are the columns
            x = (m @ x.flatten(dim + 1)).reshape(*shape[:dim], len(matrix), *shape[dim + 1 :])
    return cast(x, dtype)


def adaptive_avg_pool(ndim: int, input: Tensor, output_size: Any) -> Tensor:
    """The mean of each of `output_size` windows, which cover the input as equally as possible.

    output_size: a number, one for each dimension, or None for the size of the input.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    dims = adaptive_windows(ndim, input, output_size)
    if all(len(begins) == 1 for begins, _ in dims):
        return input.mean(tuple(range(-ndim, 0)), keepdim=True)
    matrices = []
    for n, (begins, ends) in zip(input.array.shape[-ndim:], dims, strict=True):
        inside = [(begins <= place) & (place < ends) for place in range(n)]
        matrices.append((np.array(inside) / (ends - begins)).T)
    return apply_matrices(input, matrices)


def for_dims(function: Callable) -> list[Callable]:
    """`function` for one, two and three dimensions: max_pool1d, max_pool2d and max_pool3d."""
    functions = [functools.partial(function, ndim) for ndim in (1, 2, 3)]
    for ndim, each in enumerate(functions, 1):
        each.__name__, each.__doc__ = f"{function.__name__}{ndim}d", function.__doc__
    return functions


max_pool1d, max_pool2d, max_pool3d = for_dims(max_pool)


avg_pool1d, avg_pool2d, avg_pool3d = for_dims(avg_pool)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_dims(adaptive_avg_pool)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    row = tensor([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    print(
        "windows:", adaptive_windows(1, row, 3)
    )  # -> windows: [(array([0, 2, 4]), array([3, 5, 7]))]
    print("means:", np.round(adaptive_avg_pool1d(row, 3).array, 3).tolist())
    # -> means: [[1.0, 3.0, 5.0]]
    for size in (5, 12):
        image = tensor(np.random.default_rng(0).normal(size=(2, 4, size, size)))
        print(
            f"{size} x {size}:", *(adaptive_avg_pool2d(image, out).shape for out in (1, (3, None)))
        )
    # -> 5 x 5: tinytorch.Size([2, 4, 1, 1]) tinytorch.Size([2, 4, 3, 5])
    # -> 12 x 12: tinytorch.Size([2, 4, 1, 1]) tinytorch.Size([2, 4, 3, 12])
    whole = adaptive_avg_pool2d(image, 1).array
    print("the mean of the picture:", np.allclose(whole[..., 0, 0], image.array.mean((2, 3))))
    # -> the mean of the picture: True
    print("float16:", adaptive_avg_pool1d(row.half(), 3).dtype)  # -> float16: tinytorch.float16

    for wrong in (
        lambda: adaptive_avg_pool1d(row, -1),
        lambda: adaptive_avg_pool1d(row.long(), 3),
        lambda: adaptive_avg_pool2d(row, (1, 1)),
    ):
        try:
            wrong()
        except (RuntimeError, ValueError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: elements of output_size must be greater than or equal to 0: [-1]
    # -> NotImplementedError: a weighted mean is not implemented for tinytorch.int64
    # -> ValueError: Input dimension should be at least 3, got tinytorch.Size([1, 7])
    x = tensor(np.random.default_rng(1).normal(size=(1, 5, 7)), requires_grad=True)
    pool = functools.partial(adaptive_avg_pool2d, output_size=(2, 3))
    print("derivatives:", gradcheck(pool, x) and gradgradcheck(pool, x))  # -> derivatives: True
