"""Step upsample07: padding_mode: what a convolution sees beyond the border

Zeros around a picture are like a dark frame, and a convolution near the border answers to it: the
blur of a wall of ones has a dark edge. Step upsample01 has three other borders, and a convolution
layer takes each of them as its padding_mode:

    zeros       0 0 | a b c d | 0 0        reflect     c b | a b c d | c b
    replicate   a a | a b c d | d d        circular    c d | a b c d | a b

The picture is padded first, then convolved without padding. "same" may add one more behind than
before. With "circular", the convolution is equivariant (step conv01) up to the border: if the
picture is rolled, so is the result.

The trap: a reflected border can be no wider than the picture, less one.

Changed: ConvLayer, TransposedLayer. Module finished: tinytorch/nn/modules/conv.py.
Try: padding = 5 with "reflect" on the wall. What does the error say?
"""

import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.padding import pad
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.convolution import Convolution, ConvolutionInput, geometry
from tinytorch.ops.creation import empty
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

    With kernels of 3 x 3 and 32 to 64 channels, conv2d of float32 uses Winograd's tiles, whose
    rounding errors are 3 to 5 times those of the direct way. use_deterministic_algorithms(True)
    leaves them out.

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


class ConvLayer(Module):
    """A layer with the weights of a convolution over `n` dimensions, and a bias.

    Args:
        in_channels, out_channels: C and O.
        kernel_size, stride, padding, dilation, output_padding: a number, or one for each dimension;
            padding also "same" or "valid".
        groups: how many convolutions stand side by side, each with its part of the channels.
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
        self.in_channels, self.out_channels = in_channels, out_channels
        self.groups, self.padding_mode = groups, padding_mode
        self.kernel_size, self.stride = as_many(kernel_size, self.n), as_many(stride, self.n)
        self.padding = padding if isinstance(padding, str) else as_many(padding, self.n)
        self.dilation = as_many(dilation, self.n)
        self.output_padding = as_many(output_padding, self.n)
        known = not isinstance(padding, str) or padding in ("same", "valid")
        if not known or (padding == "same" and max(self.stride) > 1):
            raise ValueError(f"padding={padding!r} is not supported with stride {self.stride}")
        channels = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
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
        for param in (self.weight, self.bias):  # not what a subclass adds
            if param is not None:
                param.uniform_(-bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`forward` with another weight: layers that mask or scale theirs call it."""
        padding = self.padding
        if self.padding_mode != "zeros":
            pads = pads_for(padding, self.kernel_size, self.stride, self.dilation)
            input = pad(input, [p for pair in pads[::-1] for p in pair], self.padding_mode)
            padding = 0
        options = self.stride, padding, self.dilation, self.groups
        return convolution(self.n, False, input, weight, bias, *options)

    def extra_repr(self) -> str:
        shown = [f"{self.in_channels}, {self.out_channels}"]
        shown += [f"kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if getattr(self, name) != (usual,) * self.n:
                shown.append(f"{name}={getattr(self, name)}")
        shown += [f"groups={self.groups}"] if self.groups != 1 else []
        shown += ["bias=False"] if self.bias is None else []
        shown += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(shown)


class TransposedLayer(ConvLayer):
    """A transposed convolution as a layer. PyTorch has its arguments in another order."""

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
            raise ValueError(
                f"{type(self).__name__} takes numbers as padding, and fills with zeros"
            )
        numbers = in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        super().__init__(*numbers, padding_mode, device, dtype, output_padding)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding if output_size is None else self.extra_for(input, output_size)
        options = self.stride, self.padding, self.dilation, self.groups, extra
        return convolution(self.n, True, input, self.weight, self.bias, *options)

    def extra_for(self, input: Tensor, output_size: Any) -> list[int]:
        """The output_padding with which the output has this size.

        Raises:
            ValueError: there is none.
        """
        own = zip(self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        sizes = zip(input.shape[-self.n :], tuple(output_size)[-self.n :], own, strict=True)
        extra = [b - (a - 1) * s + 2 * p - d * (k - 1) - 1 for a, b, (k, s, p, d) in sizes]
        if not all(0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            raise ValueError(f"no output of size {output_size} for input of size {input.shape}")
        return extra


def layer(name: str, base: type, n: int) -> type:
    """A class of layers over `n` dimensions, with a name of its own."""
    doc = f"{base.__doc__.splitlines()[0]} Input and output: [N, channels, *sizes], {n} sizes."
    return type(name, (base,), {"n": n, "__doc__": doc, "__module__": __name__})


Conv1d = layer("Conv1d", ConvLayer, 1)
Conv2d = layer("Conv2d", ConvLayer, 2)
Conv3d = layer("Conv3d", ConvLayer, 3)
ConvTranspose1d = layer("ConvTranspose1d", TransposedLayer, 1)
ConvTranspose2d = layer("ConvTranspose2d", TransposedLayer, 2)
ConvTranspose3d = layer("ConvTranspose3d", TransposedLayer, 3)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import ones
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    wall = ones(1, 1, 5)
    for mode in ("zeros", "reflect", "replicate", "circular"):
        blur = Conv1d(1, 1, 3, padding="same", padding_mode=mode, bias=False)
        blur.load_state_dict({"weight": ones(1, 1, 3) / 3})
        print(f"{mode:10}", [round(value, 2) for value in blur(wall)[0, 0].tolist()])
    # -> zeros      [0.67, 1.0, 1.0, 1.0, 0.67]
    # -> reflect    [1.0, 1.0, 1.0, 1.0, 1.0]
    # -> replicate  [1.0, 1.0, 1.0, 1.0, 1.0]
    # -> circular   [1.0, 1.0, 1.0, 1.0, 1.0]

    ring = Conv1d(1, 1, 3, padding=1, padding_mode="circular")
    x = randn(1, 1, 8)
    rolled = tensor(np.roll(x.numpy(), 3, axis=2))
    print(np.allclose(np.roll(ring(x).detach().numpy(), 3, axis=2), ring(rolled).detach().numpy()))
    # -> True
    print(ConvTranspose1d(1, 1, 3))  # -> ConvTranspose1d(1, 1, kernel_size=(3,), stride=(1,))
    print(ring)
    # -> Conv1d(1, 1, kernel_size=(3,), stride=(1,), padding=(1,), padding_mode=circular)

    def refused(make):
        try:
            make()
        except ValueError as reason:
            print(reason)

    refused(lambda: Conv2d(1, 1, 3, padding_mode="mirror"))  # -> unknown padding_mode 'mirror'
    refused(lambda: ConvTranspose1d(1, 1, 3, padding_mode="reflect"))
    # -> ConvTranspose1d takes numbers as padding, and fills with zeros
