"""Convolutions of one, two and three dimensions, and transposed convolutions, as functions and
as layers."""

import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.convolution import Convolution, ConvolutionInput, geometry
from tinytorch.ops.creation import empty
from tinytorch.ops.gather import pad
from tinytorch.ops.matmul import check_operands


def as_many(value: Any, n: int) -> tuple:
    """A number, or a sequence, for each of `n` dimensions."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * n if len(values) == 1 else values


def per_dimension(name: str, value: Any, n: int, least: int = 0) -> tuple[int, ...]:
    """`value` for each of `n` dimensions: an int, or as many as there are dimensions.

    Raises:
        RuntimeError: another number of values, or one that is less than `least`.
    """
    values = as_many(value, n)
    if len(values) != n or min(values) < least:
        raise RuntimeError(f"{name} should be {n} numbers of at least {least}, but got {value}")
    return values


def pads_for(padding: Any, kernel: tuple, stride: tuple, dilation: tuple) -> tuple:
    """(before, after) of each dimension, for numbers, "valid" or "same"."""
    if not isinstance(padding, str):
        return tuple((p, p) for p in per_dimension("padding", padding, len(kernel)))
    if padding not in ("same", "valid"):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if padding == "same" and max(stride) > 1:
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    reaches = [(k - 1) * d * (padding == "same") for k, d in zip(kernel, dilation, strict=True)]
    return tuple((reach // 2, reach - reach // 2) for reach in reaches)


def convolution(
    n: int,
    transposed: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    output_padding: Any = 0,
) -> Tensor:
    """The convolution over the last `n` dimensions, or the transposed convolution.

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
    check_operands(name, input, weight, *([] if bias is None else [bias]))
    shape, w_shape = input.array.shape, weight.array.shape
    if len(shape) not in (n + 1, n + 2) or len(w_shape) != n + 2:
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, and a {n + 2}D "
            f"weight, but got {list(shape)} and {list(w_shape)}"
        )
    stride = per_dimension("stride", stride, n, 1)
    dilation = per_dimension("dilation", dilation, n, 1)
    pads, kernel = pads_for(padding, w_shape[2:], stride, dilation), w_shape[2:]
    groups = per_dimension("groups", groups, 1, 1)[0]
    # What goes in and what comes out, by the shape of the weight: [O, C / groups, *kernel].
    wanted, made = (w_shape[0], w_shape[1] * groups)[:: 1 if transposed else -1]
    if shape[-n - 1] != wanted or w_shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w_shape)}, expected input{list(shape)} "
            f"to have {wanted} channels, but got {shape[-n - 1]} channels instead"
        )
    if bias is not None and bias.array.shape != (made,):
        raise RuntimeError(
            f"Given weight of size {list(w_shape)}, expected bias to be 1-dimensional with {made} "
            f"elements, but got bias of size {list(bias.array.shape)} instead"
        )
    batch = input if len(shape) == n + 2 else input.unsqueeze(0)
    shape, sizes = batch.array.shape, shape[-n:]
    if transposed:  # of a convolution whose output has the sizes of `input`, its input has these:
        extra = per_dimension("output_padding", output_padding, n)
        if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got {extra}"
            )
        given = zip(sizes, stride, pads, dilation, kernel, extra, strict=True)
        out = tuple((a - 1) * s - sum(p) + d * (k - 1) + 1 + e for a, s, p, d, k, e in given)
        shape = (shape[0], made, *out)
    geo = geometry(shape, w_shape, stride, pads, dilation, groups, sizes if transposed else None)
    if min(shape[2:] + geo.out) < 1:
        raise RuntimeError(
            f"Calculated padded input size per channel: {geo.padded[2:]}. Kernel size: {kernel}. "
            f"Kernel size can't be greater than actual input size"
        )
    y = (ConvolutionInput if transposed else Convolution).apply(batch, weight, bias, geo)
    return y if batch is input else y.squeeze(0)


def conv_function(n: int) -> Callable:
    """The function conv1d, conv2d or conv3d."""

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return convolution(n, False, input, weight, bias, stride, padding, dilation, groups)

    conv.__name__ = conv.__qualname__ = f"conv{n}d"
    conv.__doc__ = f"""y[i, o, p] = bias[o] + sum over c, k of w[o, c, k] x[i, c, p * stride + k].

    Args:
        input: [N, C, *size] with {n} sizes, or [C, *size].
        weight: [O, C / groups, *kernel]. Output channels of one group see the input channels of
            that group.
        bias: [O].
        stride, padding, dilation: a number, or one for each dimension; padding also "valid" (0)
            or "same" (the output is as large as the input).

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    return conv


def transposed_function(n: int) -> Callable:
    """The function conv_transpose1d, conv_transpose2d or conv_transpose3d."""

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        extra = output_padding
        return convolution(n, True, input, weight, bias, stride, padding, dilation, groups, extra)

    conv.__name__ = conv.__qualname__ = f"conv_transpose{n}d"
    conv.__doc__ = f"""The gradient of conv{n}d with respect to its input, as an operation.

    Args:
        input: [N, C, *size] with {n} sizes, or [C, *size].
        weight: [C, O / groups, *kernel].
        bias: [O].
        output_padding: so much larger is the output, at the end: where stride > 1, convolutions of
            inputs of several sizes have outputs of the same size.

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    return conv


conv1d = conv_function(1)
conv2d = conv_function(2)
conv3d = conv_function(3)
conv_transpose1d = transposed_function(1)
conv_transpose2d = transposed_function(2)
conv_transpose3d = transposed_function(3)


class ConvNd(Module):
    """What the convolution layers of `n` dimensions share.

    Args:
        in_channels, out_channels: C and O.
        kernel_size, stride, padding, dilation, output_padding: a number, or one for each dimension;
            padding also "same" or "valid".
        groups: the channels are divided into so many convolutions, side by side.
        bias: whether there is one.
        padding_mode: what the border is filled with: "zeros", "reflect", "replicate", "circular".

    Raises:
        ValueError: the channels cannot be divided, or a word is unknown.
    """

    n: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        output_padding: Any = 0,
    ):
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(f"in_channels and out_channels must be divisible by groups={groups}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"unknown padding_mode {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be 'valid' or 'same'")
        n, self.groups, self.padding_mode = self.n, groups, padding_mode
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = as_many(kernel_size, n)
        self.stride, self.dilation = as_many(stride, n), as_many(dilation, n)
        if padding == "same" and max(self.stride) > 1:
            raise ValueError("padding='same' is not supported for strided convolutions")
        self.padding = padding if isinstance(padding, str) else as_many(padding, n)
        self.output_padding = as_many(output_padding, n)
        channels = (in_channels, out_channels)[:: 1 if self.transposed else -1]
        shape = (channels[0], channels[1] // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        b = Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", b)
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws weight and bias from [-b, b), b = 1 / sqrt(weights of an output), as PyTorch."""
        inputs = math.prod(self.weight.shape[1:])
        bound = 1 / math.sqrt(inputs) if inputs else 0.0
        for param in self.parameters(recurse=False):
            param.uniform_(-bound, bound)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}"]
        parts += [f"kernel_size={self.kernel_size}, stride={self.stride}"]
        usual = {"padding": 0, "dilation": 1, "output_padding": 0}
        for name, value in usual.items():
            if getattr(self, name) != (value,) * self.n:
                parts.append(f"{name}={getattr(self, name)}")
        parts += [f"groups={self.groups}"] * (self.groups != 1)
        parts += ["bias=False"] * (self.bias is None)
        parts += [f"padding_mode={self.padding_mode}"] * (self.padding_mode != "zeros")
        return ", ".join(parts)

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            pads = pads_for(padding, self.kernel_size, self.stride, self.dilation)
            input = pad(input, [p for pair in pads[::-1] for p in pair], self.padding_mode)
            padding = 0
        options = self.stride, padding, self.dilation, self.groups
        return convolution(self.n, False, input, self.weight, self.bias, *options)


class ConvTransposeNd(ConvNd):
    """What the transposed layers share. The arguments are in PyTorch's order, which is another."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        if padding_mode != "zeros" or isinstance(padding, str):
            raise ValueError(f"Only zeros and numbers as padding for {type(self).__name__}")
        numbers = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        super().__init__(*numbers, padding_mode, device, dtype, output_padding)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding
        if output_size is not None:
            extra = self.extra_for(input, tuple(output_size))
        options = self.stride, self.padding, self.dilation, self.groups, extra
        return convolution(self.n, True, input, self.weight, self.bias, *options)

    def extra_for(self, input: Tensor, output_size: tuple) -> list[int]:
        """The output_padding with which the output has this size.

        Raises:
            ValueError: there is none.
        """
        sizes = zip(
            input.shape[-self.n :],
            output_size[-self.n :],
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            strict=True,
        )
        extra = [out - (a - 1) * s + 2 * p - d * (k - 1) - 1 for a, out, k, s, p, d in sizes]
        wrong = any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True))
        if wrong or len(output_size) not in (self.n, input.array.ndim):
            raise ValueError(f"an output size of {output_size} cannot be had from {input.shape}")
        return extra


class Conv1d(ConvNd):
    """Convolution of [N, C, length]."""

    n = 1


class Conv2d(ConvNd):
    """Convolution of [N, C, height, width]."""

    n = 2


class Conv3d(ConvNd):
    """Convolution of [N, C, depth, height, width]."""

    n = 3


class ConvTranspose1d(ConvTransposeNd):
    """Transposed convolution of [N, C, length]."""

    n = 1


class ConvTranspose2d(ConvTransposeNd):
    """Transposed convolution of [N, C, height, width]."""

    n = 2


class ConvTranspose3d(ConvTransposeNd):
    """Transposed convolution of [N, C, depth, height, width]."""

    n = 3
