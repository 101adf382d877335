"""Step activation13: prelu: a learned slope

The slope of leaky_relu below 0 has to be chosen: 0.01, or 0.2? He et al. (2015) learn it
instead: the slope is a parameter, one for the layer or one for each channel.

    prelu(x) = x where x > 0, w x elsewhere        dL/dw = sum of g x over all x <= 0

It needs no Function of its own, because where and the product have derivatives. The module is
written by hand, because it has a parameter; FunctionModule (step activation11) would make it a
buffer.

The trap: weight decay (step optimizer11) pulls a learned slope towards 0, that is, to relu.
PyTorch's documentation advises against it here.

New: prelu, PReLU.
Try: learn |x| with one slope for each of the 21 numbers: PReLU(21), and x of the shape [1, 21].
Which slopes stay 0.25, and why?
"""

import functools
import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.inplace import assign, check_writable
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.device import cpu
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.comparison import Where, where
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import empty_like, full, zeros_like
from tinytorch.ops.elementwise import require_tensors, sigmoid, tanh
from tinytorch.ops.erf import ERF_FLOAT32, erf_of, polynomial
from tinytorch.ops.joining import chunk
from tinytorch.ops.reduction import wide
from tinytorch.ops.scalar import checked_number
from tinytorch.ops.softmax import softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Activation(Function):
    """y = f(x), element for element: a subclass gives `value`, f, and `slope`, g times dy/dx.

    float16 is computed as float32 and rounded once. exp never gets a large positive number where
    its result counts: that would be inf, and inf * 0 is nan.
    """

    saves = (0,)

    def forward(ctx, x: Any, *options: float) -> Any:
        ctx.options = options
        ctx.save_for_backward(x)
        return ctx.value(wide(x), *options).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return ctx.slope(g, *ctx.saved, *ctx.options)

    def name(ctx) -> str:
        return type(ctx).__name__.removesuffix("Activation") + "Backward0"


class LeakyRelu(Activation):
    """y = x where x > 0, s x elsewhere;   dy/dx = 1, or s."""

    def value(ctx, x: Any, s: float) -> Any:
        if not math.isfinite(s):  # 0 * s would be nan
            return ctx.xp.where(x > 0, x, x * s)
        return ctx.xp.maximum(x, 0) + s * ctx.xp.minimum(x, 0)

    def slope(ctx, g: Any, x: Any, s: float) -> Any:
        if not math.isfinite(s):
            return ctx.call(Where, x > 0, g, g * s)
        return g * s + g * (x > 0) * (1 - s)


class Elu(Activation):
    """y = x where x > 0, a (exp(x) - 1) elsewhere;   dy/dx = 1, or a exp(x)."""

    def value(ctx, x: Any, a: float) -> Any:
        below = a * ctx.xp.expm1(ctx.xp.minimum(x, 0))
        return ctx.xp.maximum(x, 0) + below if math.isfinite(a) else ctx.xp.where(x > 0, x, below)

    def slope(ctx, g: Any, x: Any, a: float) -> Any:
        if not math.isfinite(a):
            return ctx.call(Where, x > 0, g, g * ctx.xp.exp(ctx.xp.clip(x, None, 0)) * a)
        return g * (x > 0) + g * (x <= 0) * ctx.xp.exp(ctx.xp.clip(x, None, 0)) * a


# P(x), the normal distribution function, is (1 + tanh(x p)) / 2 with a polynomial p in x^2: that of
# erf, for x / sqrt(2).
NORMAL_FLOAT32 = tuple(c * 0.5 ** (k + 0.5) for k, c in enumerate(ERF_FLOAT32))


@functools.singledispatch
def gelu_of(x: Any, xp: Any, need_slope: bool) -> tuple:
    """gelu(x) = x P(x), and its derivative P(x) + x P'(x), or None where that is not needed."""
    share = 0.5 + 0.5 * erf_of(x * math.sqrt(0.5), xp)
    slope = share + x * xp.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi) if need_slope else None
    return x * share, slope


@gelu_of.register(np.ndarray)
def gelu_of_numpy(x: np.ndarray, xp: Any, need_slope: bool) -> tuple:
    """The same. For float32 each chunk goes through all passes while it is in the cache, and most
    of them write into memory that is there."""
    if x.dtype != np.float32:
        return gelu_of.dispatch(object)(x, xp, need_slope)
    row, size = x.reshape(-1), cpu.backend.chunk_elements
    y, slope = np.empty_like(row), np.empty_like(row) if need_slope else None
    for i in range(0, len(row), size):
        part = slice(i, i + size)
        a = row[part]
        square = a * a
        share = polynomial(NORMAL_FLOAT32, square)
        share *= a
        np.tanh(share, out=share)
        share *= 0.5
        share += 0.5
        np.multiply(a, share, out=y[part])
        if need_slope:
            d = slope[part]
            square *= -0.5
            np.exp(square, out=d)
            d *= a
            d *= math.sqrt(0.5 / math.pi)
            d += share
    return y.reshape(x.shape), slope.reshape(x.shape) if need_slope else None


class Gelu(Activation):
    """y = x P(x), P the normal distribution function;   dy/dx = P(x) + x P'(x).

    dy/dx is computed together with y, in fewer passes than on its own, and kept; only a second
    derivative computes it again.
    """

    saves = 0, None

    def forward(ctx, x: Any) -> Any:
        y, slope = gelu_of(wide(x), ctx.xp, ctx.needs_input_grad[0])
        ctx.save_for_backward(x, slope)
        return y.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, slope = ctx.saved
        slope = gelu_of(x, ctx.xp, True)[1] if isinstance(x, Tensor) else slope
        return g * slope


class GeluActivation(Activation):
    """y = x (1 + t) / 2 with t = tanh(c (x + 0.044715 x^3)), c = sqrt(2 / pi): almost Gelu."""

    def tanh(ctx, x: Any) -> Any:
        return ctx.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))

    def value(ctx, x: Any) -> Any:
        return 0.5 * x * (1 + ctx.tanh(x))

    def slope(ctx, g: Any, x: Any) -> Any:
        t = ctx.tanh(x)
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * (x * x))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


class Silu(Activation):
    """y = x s(x), s the sigmoid;   dy/dx = s + x s (1 - s)."""

    def value(ctx, x: Any) -> Any:
        return x / (1 + ctx.xp.exp(-x))

    def slope(ctx, g: Any, x: Any) -> Any:
        s = 1 / (1 + ctx.xp.exp(-x))
        return g * s * (1 + x * (1 - s))


class SoftplusActivation(Activation):
    """y = log(1 + exp(b x)) / b, or x where b x > limit;   dy/dx = 1 / (1 + exp(-b x)), or 1."""

    def value(ctx, x: Any, b: float, limit: float) -> Any:
        z = x * b
        soft = ctx.xp.maximum(z, 0) + ctx.xp.log1p(ctx.xp.exp(-ctx.xp.abs(z)))
        return soft / b if limit == math.inf else ctx.xp.where(z > limit, x, soft / b)

    def slope(ctx, g: Any, x: Any, b: float, limit: float) -> Any:
        soft = g / (1 + ctx.xp.exp(x * -b))
        return soft if limit == math.inf else g * (x * b > limit) + soft * (x * b <= limit)


def activate(function: Callable, input: Tensor, inplace: bool, *options: float) -> Tensor:
    """function(input, *options), written into `input` if `inplace`.

    Raises:
        TypeError: for anything but a tensor.
        NotImplementedError: for integers.
        RuntimeError: an option does not fit the type.
    """
    require_tensors("activation", (input,))
    if not input.is_floating_point():
        raise NotImplementedError(f"this activation is not implemented for {input.dtype!r}")
    for option in options:
        checked_number(option, float64)
    if not inplace:
        return function(input, *options)
    check_writable(input)
    # backward needs what is overwritten here: it keeps a copy.
    return assign(input, function(clone(input), *options))


@checked
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu_() if inplace else input.relu()


@checked
def relu_(input: Tensor) -> Tensor:
    """relu, written into the input."""
    return input.relu_()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return activate(LeakyRelu.apply, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, alpha * (exp(input) - 1) elsewhere (Clevert et al., 2015)."""
    return activate(Elu.apply, input, inplace, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016).

    approximate="tanh" is a formula without erf, off by 0.0005 at most.
    Raises:
        RuntimeError: for another value of `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return activate((Gelu if approximate == "none" else GeluActivation).apply, input, False)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish (Elfwing et al., 2017)."""
    return activate(Silu.apply, input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta, a smooth relu; input itself above threshold / beta."""
    return activate(SoftplusActivation.apply, input, False, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), right also where the sigmoid is too small for a float."""
    return -activate(SoftplusActivation.apply, -input, False, 1.0, math.inf)


class FunctionModule(Module):
    """A module that calls a function. Its arguments are the options of the function and become
    attributes: LeakyReLU(0.2).negative_slope is 0.2. Those for tensors become buffers."""

    _inputs = 1  # tensors that forward takes; the other arguments of the function are options

    def __init_subclass__(cls, function: Callable | None = None, options: int | None = None):
        """`class ReLU(FunctionModule, function=relu)`: with all its options, or the first few."""
        if function is not None:
            parameters = [*inspect.signature(function).parameters.values()][cls._inputs :][:options]
            cls._function, cls._options = staticmethod(function), [p.name for p in parameters]
            cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        given = self.__signature__.bind(*args, **kwargs)
        given.apply_defaults()
        for name, value in given.arguments.items():
            if name.endswith("weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(*inputs, **{name: getattr(self, name) for name in self._options})

    def extra_repr(self) -> str:
        shown = [(name, getattr(self, name)) for name in self._options]
        return ", ".join(f"{name}={value!r}" for name, value in shown if value is not False)


class ReLU(FunctionModule, function=relu):
    """relu as a module."""


class LeakyReLU(FunctionModule, function=leaky_relu):
    """leaky_relu as a module."""


class ELU(FunctionModule, function=elu):
    """elu as a module."""


class GELU(FunctionModule, function=gelu):
    """gelu as a module."""


class SiLU(FunctionModule, function=silu):
    """silu as a module."""


class Softplus(FunctionModule, function=softplus):
    """softplus as a module."""


class LogSigmoid(FunctionModule, function=logsigmoid):
    """logsigmoid as a module."""


class Sigmoid(FunctionModule, function=sigmoid):
    """sigmoid as a module."""


class Tanh(FunctionModule, function=tanh):
    """tanh as a module."""


def curve(name: str, value: Callable, slope: Callable) -> type[Activation]:
    """The Activation y = value(ctx, x, ...) with g * dy/dx = slope(ctx, g, x, ...)."""
    return type(name, (Activation,), {"value": value, "slope": slope})


HardtanhActivation = curve(
    "Hardtanh",
    lambda ctx, x, a, b: ctx.xp.clip(x, a, b),
    lambda ctx, g, x, a, b: g * ~((x <= a) | (x >= b)),  # a nan passes its gradient on
)


HardsigmoidActivation = curve(
    "Hardsigmoid",
    lambda ctx, x: ctx.xp.clip(x + 3, 0, 6) / 6,
    lambda ctx, g, x: g * ((x > -3) & (x < 3)) / 6,
)


HardswishActivation = curve(
    "Hardswish",
    lambda ctx, x: x * ctx.xp.clip(x + 3, 0, 6) / 6,
    lambda ctx, g, x: g * (x >= 3) + g * ((x > -3) & (x < 3)) * (x / 3 + 0.5),
)


ThresholdActivation = curve(
    "Threshold",
    lambda ctx, x, threshold, value: ctx.xp.where(x <= threshold, value, x),
    lambda ctx, g, x, threshold, value: g * (x > threshold),
)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace=False) -> Tensor:
    """input, cut off at min_val and max_val.

    Raises:
        ValueError: min_val is larger than max_val.
    """
    if min_val > max_val:
        raise ValueError(f"min_val {min_val} cannot be greater than max_val {max_val}")
    return activate(HardtanhActivation.apply, input, inplace, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """relu, cut off at 6 (Howard et al., 2017)."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """A sigmoid of three straight lines: (input + 3) / 6 between 0 and 1."""
    return activate(HardsigmoidActivation.apply, input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input) (Howard et al., 2019)."""
    return activate(HardswishActivation.apply, input, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is larger than the threshold, else the value."""
    return activate(ThresholdActivation.apply, input, inplace, threshold, value)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """elu with a slope of 1 at 0: alpha * (exp(input / alpha) - 1) below (Barron, 2017).

    Raises:
        RuntimeError: alpha is 0.
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return activate(lambda x: elu(x / alpha) * alpha, input, inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu, scaled so that mean 0 and variance 1 go through (Klambauer et al., 2017)."""
    return activate(lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (Misra, 2019)."""
    return activate(lambda x: x * softplus(x).tanh(), input, inplace)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """One half of the input, times the sigmoid of the other (Dauphin et al., 2016).

    Raises:
        RuntimeError: the size of `dim` is odd.
    """
    if not input.array.ndim or input.array.shape[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but the input has {input.shape}")
    a, b = chunk(input, 2, dim)
    return a * b.sigmoid()


@checked
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A class drawn with the probabilities softmax(logits), in a form that has a gradient.

    Not `hard`: softmax((logits + noise) / tau), the nearer to one class the smaller tau is. `hard`:
    exactly one class, with the gradient of the former (Jang et al., 2017). `eps` does nothing.
    """
    noise = -empty_like(logits).exponential_().log()
    y = softmax((logits + noise) / tau, dim)
    if not hard:
        return y
    one = zeros_like(y).scatter(dim, y.argmax(dim, keepdim=True), 1.0)
    return one - y.detach() + y


class Hardtanh(FunctionModule, function=hardtanh):
    """hardtanh as a module."""


class ReLU6(FunctionModule, function=relu6):
    """relu6 as a module."""


class Hardsigmoid(FunctionModule, function=hardsigmoid):
    """hardsigmoid as a module."""

    def extra_repr(self) -> str:
        return ""


class Hardswish(FunctionModule, function=hardswish):
    """hardswish as a module."""

    def extra_repr(self) -> str:
        return ""


class Threshold(FunctionModule, function=threshold):
    """threshold as a module."""


class CELU(FunctionModule, function=celu):
    """celu as a module."""


class SELU(FunctionModule, function=selu):
    """selu as a module."""


class Mish(FunctionModule, function=mish):
    """mish as a module."""


class Softsign(FunctionModule, function=softsign):
    """softsign as a module."""


class Tanhshrink(FunctionModule, function=tanhshrink):
    """tanhshrink as a module."""


class GLU(FunctionModule, function=glu):
    """glu as a module."""


@checked
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with slopes that are learned: one, or one for each channel (dimension 1).

    Raises:
        RuntimeError: for another number of slopes.
    """
    shape, n = input.array.shape, weight.numel()
    if weight.array.ndim > 1 or n not in (1, shape[1] if shape[1:] else 1):
        raise RuntimeError(f"prelu: weight {weight.shape} does not fit an input of {input.shape}")
    weight = weight.reshape([] if n == 1 else [n, *[1] * (len(shape) - 2)])
    return where(input > 0, input, weight * input)


class PReLU(Module):
    """prelu as a module, with `num_parameters` slopes that start at `init`."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    # A slope that is learned: |x| is x above 0 and -x below, so it has to become -1.
    x, bend = linspace(-1, 1, 21), PReLU()
    for _ in range(100):
        bend.zero_grad()
        (bend(x) - x.abs()).square().mean().backward()
        with no_grad():
            bend.weight -= bend.weight.grad
    print(bend, f"starts with 0.25 and learns {bend.weight.item():.2f}")
    # -> PReLU(num_parameters=1) starts with 0.25 and learns -1.00

    # One slope for each channel, or one for all.
    y = prelu(tensor([[-1.0, -1.0], [2.0, 2.0]]), tensor([0.5, 0.1]))
    print(y, PReLU(2)(randn(4, 2, 3)).shape)
    # -> tensor([[-0.5000, -0.1000],
    # ->         [ 2.0000,  2.0000]]) tinytorch.Size([4, 2, 3])
    try:
        prelu(randn(4, 3), tensor([0.5, 0.1]))
    except RuntimeError as error:
        print(error)
    # -> prelu: weight tinytorch.Size([2]) does not fit an input of tinytorch.Size([4, 3])
