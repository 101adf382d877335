"""Step convlayers03: Conv2d in the package's dress

Step 50c built Conv2d. Here it is made by `layer`, which makes the class for a number of dimensions;
step convlayers04 makes the others with it.

How large should the numbers be at the start? An output is a sum of n = C * kh * kw products. As in
Linear (step layers01), each weight is drawn from [-b, b) with b = 1 / sqrt(n). With groups, n
counts the C / groups channels that one output sees. The weights are drawn before the bias, so that
the same seed gives PyTorch's numbers where the generators agree.

A number after the first layer depends on 3 x 3 pixels, after the second on 5 x 5, after the third
on 7 x 7: its receptive field. The demo's network takes the largest number of each channel over all
places. Moved by one pixel, a linear classifier falls from 89 % to 29 % of the digits; this network
falls from 95 % to 93 %.

The trap: Conv2d(8, 8, 3) on pictures that were read as [N, H, W]. PyTorch takes that for one
picture with N channels. Batches of grey pictures need a dimension of size 1: unsqueeze(1).

New: ConvLayer, layer; Conv2d.
Try: Flatten and a Linear layer of all places at the end, in place of amax. How much is lost then?
"""

import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
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
    """A layer with the weights of a convolution over `n` dimensions, and a bias."""

    n: int

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
    ):
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(f"in_channels and out_channels must be divisible by groups={groups}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = as_many(kernel_size, self.n), as_many(stride, self.n)
        self.padding = as_many(padding, self.n)
        self.dilation, self.groups = as_many(dilation, self.n), groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape))
        b = Parameter(empty(out_channels)) if bias else None
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
        options = self.stride, self.padding, self.dilation, self.groups
        return convolution(self.n, False, input, self.weight, self.bias, *options)

    def extra_repr(self) -> str:
        sizes = f"kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{self.in_channels}, {self.out_channels}, {sizes}"


def layer(name: str, base: type, n: int) -> type:
    """A class of layers over `n` dimensions, with a name of its own."""
    doc = f"{base.__doc__.splitlines()[0]} Input and output: [N, channels, *sizes], {n} sizes."
    return type(name, (base,), {"n": n, "__doc__": doc, "__module__": __name__})


Conv2d = layer("Conv2d", ConvLayer, 2)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.core.tensor import tensor
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.adam import Adam

    manual_seed(0)
    conv = Conv2d(6, 4, (3, 5), stride=2, groups=2)
    print(conv)  # -> Conv2d(6, 4, kernel_size=(3, 5), stride=(2, 2))
    print(conv.weight.shape, conv.bias.shape, conv(randn(1, 6, 9, 9)).shape)
    # -> tinytorch.Size([4, 3, 3, 5]) tinytorch.Size([4]) tinytorch.Size([1, 4, 4, 3])
    n = 3 * 3 * 5
    print("largest:", conv.weight.abs().max().item() < n**-0.5, f"bound {n**-0.5:.3f}")
    # -> largest: True bound 0.149
    print(Conv2d(0, 2, 3).bias.abs().max().item(), Conv2d(1, 2, 3, bias=False).bias)  # -> 0.0 None
    try:
        Conv2d(3, 4, 3, groups=2)
    except ValueError as reason:
        print(reason)  # -> in_channels and out_channels must be divisible by groups=2

    images, labels = load_digits()
    images = images.unsqueeze(1)
    features = Sequential(
        Conv2d(1, 16, 3, padding=1),
        ReLU(),
        Conv2d(16, 32, 3, padding=1),
        ReLU(),
        Conv2d(32, 64, 3),
        ReLU(),
    )
    last = Linear(64, 10)

    def network(x):
        return last(features(x).amax((2, 3)))

    optimizer = Adam([*features.parameters(), *last.parameters()], lr=0.003)
    for first in [*range(0, 900, 50)] * 6:
        batch, targets = images[first : first + 50], labels[first : first + 50]
        optimizer.zero_grad()
        cross_entropy(network(batch), targets).backward()
        optimizer.step()

    def accuracy(moved_by):
        moved = tensor(np.roll(images[900:].numpy(), moved_by, axis=3))
        return (network(moved).argmax(1) == labels[900:]).float().mean().item()

    print("weights:", sum(p.numel() for p in optimizer.param_groups[0]["params"]))
    # -> weights: 23946
    read, moved, twice = (accuracy(by) for by in (0, 1, 2))
    print(f"read: {read:.0%}, moved by 1: {moved:.0%}, by 2: {twice:.0%}")  # -> ...
    print("moved by 1 it loses less than 5 of 100:", moved > read - 0.05)
    # -> moved by 1 it loses less than 5 of 100: True
