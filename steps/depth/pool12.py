"""Step pool12: The twelve pooling layers, from one class

A network is written down as layers, so each function needs a module: MaxPool2d(2) keeps its numbers
and calls max_pool2d. Step activation11 has such a class, FunctionModule: it reads a function's
arguments from its signature. All that is left is

    stride    is by default the size of the kernel, and the layer shows it as its own
    repr      MaxPool2d shows five of its arguments, AvgPool2d three, the adaptive ones one

type(name, bases, members, function=...) makes a class as the statement `class` does, so `layers`
makes three classes from each function. Their names come from that of the function:
adaptive_max_pool, as a title and without _, is AdaptiveMaxPool.

Two oddities of PyTorch have to be kept, so that programs and printed networks stay the same.
MaxPool2d takes return_indices before ceil_mode, max_pool2d takes it after. And AvgPool1d, alone of
all, keeps its numbers as tuples.

apply_matrices calls its product WeightedMean, a name of its own: autocast, which comes later and
chooses operations by their names, must not take it for a product with learned weights.

None of them has parameters. A file with the weights of a network holds nothing for them.

New: PoolingLayer, MaxPoolingLayer, layers, and the twelve classes. The module pooling.py is
finished.
Try: print(AvgPool1d(2)), and remove the three lines that make it special.
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
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.ops import elementwise, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import allocated
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.gather import gather
from tinytorch.ops.matmul import MatMul


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


class WeightedMean(MatMul):
    """A product with weights that are not learned. autocast, which goes by names, leaves it."""


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
            x = WeightedMean.apply(x, m.T)
        else:  # the dimensions behind this one are the columns
            x = WeightedMean.apply(m, x.flatten(dim + 1)).reshape(
                *shape[:dim], len(matrix), *shape[dim + 1 :]
            )
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


def adaptive_max_pool(ndim, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of each window; the arguments are those of adaptive average pooling.

    return_indices: also return where in its plane, counted row by row, each maximum was.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    dims, flat = adaptive_windows(ndim, input, output_size), input.flatten(-ndim)
    keys, sizes = [], tuple(len(begins) for begins, _ in dims)
    if set(sizes) == {1}:
        indices = flat.argmax(-1).reshape(*input.shape[:-ndim], *sizes)
    else:
        for trailing, (begins, ends) in zip(range(ndim - 1, -1, -1), dims, strict=True):
            # All windows are as long as the longest: the others repeat their last element, which
            # is then not the first of equal ones.
            longest = max(ends - begins, default=1)  # there may be no window: a size of 0
            places = [np.minimum(begins + t, ends - 1).tolist() for t in range(longest)]
            arrays = input.device.xp.asarray(places, int).reshape(longest, -1, *(1,) * trailing)
            keys.append([(slice(None), array) for array in arrays])
        windows = Windows(sizes, join_dims(keys), True)
        indices = MaxPool.apply(input.detach(), windows, True)[1]
    values = gather(flat, -1, indices.flatten(-ndim)).reshape(indices.shape)
    return (values, indices) if return_indices else values


def for_dims(function: Callable) -> list[Callable]:
    """`function` for one, two and three dimensions: max_pool1d, max_pool2d and max_pool3d."""
    functions = [functools.partial(function, ndim) for ndim in (1, 2, 3)]
    for ndim, each in enumerate(functions, 1):
        each.__name__, each.__doc__ = f"{function.__name__}{ndim}d", function.__doc__
    return functions


max_pool1d, max_pool2d, max_pool3d = for_dims(max_pool)


avg_pool1d, avg_pool2d, avg_pool3d = for_dims(avg_pool)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_dims(adaptive_avg_pool)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = for_dims(adaptive_max_pool)


class PoolingLayer(FunctionModule):
    """A pooling function as a module, whose repr shows the first options."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if "stride" in self._options and self.stride is None:
            self.stride = self.kernel_size
        if type(self) is AvgPool1d:  # PyTorch keeps tuples here, and only here
            for name in self._options[:3]:
                setattr(self, name, for_each_dim(getattr(self, name), 1))

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._options[: self._shown])


class MaxPoolingLayer(PoolingLayer):
    """max_pool as a module, which takes its last two arguments in another order."""

    def __init__(
        self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False
    ):
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def layers(function: Callable, shown: int, base: type = PoolingLayer) -> list[type]:
    """The layers of a function for one, two and three dimensions: MaxPool1d, MaxPool2d, ..."""
    name = function.__name__.title().replace("_", "")
    return [
        type(f"{name}{ndim}d", (base,), {"_shown": shown}, function=each)
        for ndim, each in enumerate(for_dims(function), 1)
    ]


MaxPool1d, MaxPool2d, MaxPool3d = layers(max_pool, 5, MaxPoolingLayer)


AvgPool1d, AvgPool2d, AvgPool3d = layers(avg_pool, 3)


AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = layers(adaptive_avg_pool, 1)


AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = layers(adaptive_max_pool, 1)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)

    for layer in (MaxPool2d(2), MaxPool3d(3, stride=2, ceil_mode=True), AvgPool1d(2), AvgPool2d(4)):
        print(layer)
    # -> MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    # -> MaxPool3d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=True)
    # -> AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))
    # -> AvgPool2d(kernel_size=4, stride=4, padding=0)
    print(AdaptiveMaxPool2d((None, 3), return_indices=True), AdaptiveAvgPool2d(1))
    # -> AdaptiveMaxPool2d(output_size=(None, 3)) AdaptiveAvgPool2d(output_size=1)
    x = tensor(np.random.default_rng(0).normal(size=(1, 2, 8, 8)))
    for layer in (MaxPool2d(3, 2, 1), MaxPool2d(3, 2, 0, 1, False, True), AvgPool2d(2)):
        print(layer(x).shape)
    # -> tinytorch.Size([1, 2, 4, 4])
    # -> tinytorch.Size([1, 2, 4, 4])
    # -> tinytorch.Size([1, 2, 4, 4])
    print("the same:", np.array_equal(MaxPool2d(2)(x).array, max_pool2d(x, 2).array))
    # -> the same: True
    print("unequal windows:", AdaptiveAvgPool2d(3)(x).shape)
    # -> unequal windows: tinytorch.Size([1, 2, 3, 3])
    values, places = AdaptiveMaxPool2d(2, return_indices=True)(x)
    print("both:", values.shape, places.dtype, "parameters:", list(AvgPool3d(2).parameters()))
    # -> both: tinytorch.Size([1, 2, 2, 2]) tinytorch.int64 parameters: []
