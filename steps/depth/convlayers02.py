"""Step convlayers02: Catalogue: the functions of convolution

The functions under PyTorch's names. Skim them: conv1d, conv2d and conv3d differ in the number of
dimensions, so that one function makes them, each with its name and its text. The transposed
convolution is ConvolutionInput of step conv08 behind the checks of step convlayers01, and "same"
computes a padding.

    conv_transpose2d(input [N, C, H, W], weight [C, O / groups, kh, kw])  -> [N, O, H', W']
    H' = (H - 1) stride - 2 padding + dilation (kh - 1) + 1 + output_padding

The weight is that of the convolution whose gradient this is: the outputs of that convolution are
the inputs here. Several sizes have the same number of windows (step conv08), and output_padding
chooses one of them.

"same": dilation (kernel - 1) zeros keep the size; if their number is odd, one more comes after the
picture than before it.

Changed: convolution. New: pads_for, named, conv_function, transposed_function; conv1d to conv3d and
conv_transpose1d to conv_transpose3d.
Try: find the output_padding with which conv_transpose2d undoes the sizes of conv2d(stride=3).
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.convolution import Convolution, ConvolutionInput, geometry
from tinytorch.ops.matmul import check_operands

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def as_many(value: Any, n: int) -> tuple:
    """`value` for each of `n` dimensions: a number, or a sequence of numbers.

    Raises:
        TypeError: one of them is not an integer.
    """
    values = as_shape((value,))
    return values * n if len(values) == 1 else values


def per_dimension(name: str, value: Any, n: int, least: int = 0) -> tuple[int, ...]:
    """`as_many`, checked.

    Raises:
        RuntimeError: not `n` numbers, or one that is less than `least`.
    """
    values = as_many(value, n)
    if len(values) != n or min(values) < least:
        raise RuntimeError(f"{name} should be {n} numbers of at least {least}, but got {value}")
    return values


def pads_for(padding: Any, kernel: tuple, stride: tuple, dilation: tuple) -> tuple:
    """(before, after) of each dimension, for numbers, "valid" (none) or "same" (the output is as
    large as the input).

    Raises:
        RuntimeError: another word, or "same" with a stride.
    """
    if not isinstance(padding, str):
        return tuple((p, p) for p in per_dimension("padding", padding, len(kernel)))
    if padding not in ("same", "valid") or (padding == "same" and max(stride) > 1):
        raise RuntimeError(f"padding={padding!r} is not supported with stride {stride}")
    reaches = [(k - 1) * d * (padding == "same") for k, d in zip(kernel, dilation, strict=True)]
    return tuple((reach // 2, reach - reach // 2) for reach in reaches)


def convolution(
    n: int, transposed: bool, input: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor:
    """The convolution over the last `n` dimensions, or the transposed convolution.

    options: stride, padding, dilation, groups; of a transposed convolution also output_padding.

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    stride, padding, dilation, groups, *extra = options
    check_operands("convolution", input, weight, *([] if bias is None else [bias]))
    shape, w_shape, kernel = input.array.shape, weight.array.shape, weight.array.shape[2:]
    if len(shape) not in (n + 1, n + 2) or len(w_shape) != n + 2:
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input and a {n + 2}D weight, but "
            f"got input of size {list(shape)} and weight of size {list(w_shape)}"
        )
    batch = input if len(shape) == n + 2 else input.unsqueeze(0)
    shape, sizes = batch.array.shape, batch.array.shape[2:]
    stride = per_dimension("stride", stride, n, 1)
    dilation = per_dimension("dilation", dilation, n, 1)
    pads = pads_for(padding, kernel, stride, dilation)
    # The weight is [O, C / groups, *kernel]. A transposed convolution goes from O to C channels.
    (groups,) = per_dimension("groups", groups, 1, 1)
    inner = w_shape[1] * groups
    wanted, made = (w_shape[0], inner) if transposed else (inner, w_shape[0])
    if shape[1] != wanted or w_shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w_shape)}, expected input{list(shape)} "
            f"to have {wanted} channels, but got {shape[1]} channels instead"
        )
    if bias is not None and bias.array.shape != (made,):
        raise RuntimeError(f"Expected bias of size [{made}], but got {list(bias.array.shape)}")
    if transposed:  # its output has the size of the input of a convolution from there to `sizes`
        extra = per_dimension("output_padding", extra[0], n)
        if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
            raise RuntimeError(f"output padding {extra} must be smaller than stride or dilation")
        each = zip(sizes, stride, pads, dilation, kernel, extra, strict=True)
        out = ((a - 1) * s - sum(p) + d * (k - 1) + 1 + e for a, s, p, d, k, e in each)
        shape = (shape[0], made, *out)
    geo = geometry(shape, w_shape, stride, pads, dilation, groups, sizes if transposed else None)
    if min(shape[2:] + geo.out) < 1:
        raise RuntimeError(f"Kernel size {kernel} can't be greater than input size {sizes}")
    y = (ConvolutionInput if transposed else Convolution).apply(batch, weight, bias, geo)
    return y if batch is input else y.squeeze(0)


def named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name)  # for messages
    function.__doc__ = doc
    return function


def conv_function(n: int) -> Callable:
    """The function conv1d, conv2d or conv3d."""

    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        return convolution(n, False, input, weight, bias, stride, padding, dilation, groups)

    doc = f"""y[i, o, p] = bias[o] + sum over c, k of w[o, c, k] x[i, c, p * stride + k * dilation].

    Args:
        input: [N, C, *size] with {n} sizes, or [C, *size].
        weight: [O, C / groups, *kernel]. The output channels of one of the `groups` see the input
            channels of this group only.
        bias: [O].
        stride, padding, dilation: a number, or one for each dimension; padding also "valid" (none)
            or "same" (the output is as large as the input).

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    return named(conv, f"conv{n}d", doc)


def transposed_function(n: int) -> Callable:
    """The function conv_transpose1d, conv_transpose2d or conv_transpose3d."""

    def conv(
        input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
    ) -> Tensor:
        options = stride, padding, dilation, groups, output_padding
        return convolution(n, True, input, weight, bias, *options)

    doc = f"""The gradient of conv{n}d with respect to its input, as an operation.

    Args:
        input: [N, C, *size] with {n} sizes, or [C, *size].
        weight: [C, O / groups, *kernel].
        bias: [O].
        output_padding: so much larger is the output, at the end. With a stride, convolutions of
            inputs of several sizes have outputs of one size.

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    return named(conv, f"conv_transpose{n}d", doc)


conv1d = conv_function(1)
conv2d = conv_function(2)
conv3d = conv_function(3)
conv_transpose1d = transposed_function(1)
conv_transpose2d = transposed_function(2)
conv_transpose3d = transposed_function(3)


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    x, w = randn(1, 2, 9, 9), randn(4, 2, 4, 4)
    print(conv2d.__name__, conv1d(x[0, 0], randn(3, 9, 2)).shape)
    # -> conv2d tinytorch.Size([3, 8])
    print(conv2d.__doc__.splitlines()[0])
    # -> y[i, o, p] = bias[o] + sum over c, k of w[o, c, k] x[i, c, p * stride + k * dilation].
    print(conv2d(x, w, padding="same").shape, conv2d(x, w, padding="valid").shape)
    # -> tinytorch.Size([1, 4, 9, 9]) tinytorch.Size([1, 4, 6, 6])
    y = conv2d(x, w, stride=2, padding=1)
    print(y.shape, conv_transpose2d(y, w, stride=2, padding=1).shape)
    # -> tinytorch.Size([1, 4, 4, 4]) tinytorch.Size([1, 2, 8, 8])
    print(conv_transpose2d(y, w, stride=2, padding=1, output_padding=1).shape)
    # -> tinytorch.Size([1, 2, 9, 9])
    print(conv_transpose1d(randn(4, 5), randn(4, 1, 3), randn(2), groups=2).shape)
    # -> tinytorch.Size([2, 7])

    # The transposed convolution is the gradient: <y, conv(x)> = <conv_transpose(y), x>.
    back = conv_transpose2d(y, w, stride=2, padding=1, output_padding=1)
    print(abs((y * y).sum().item() / (back * x).sum().item() - 1) < 1e-5)  # -> True

    def refused(function, *args, **options):
        try:
            function(*args, **options)
        except RuntimeError as reason:
            print(reason)

    refused(conv2d, x, w, padding="some")  # -> padding='some' is not supported with stride (1, 1)
    refused(conv2d, x, w, padding="same", stride=2)
    # -> padding='same' is not supported with stride (2, 2)
    refused(conv_transpose2d, y, w, stride=2, output_padding=2)
    # -> output padding (2, 2) must be smaller than stride or dilation
