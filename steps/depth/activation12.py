"""Step activation12: Catalogue: more activations

Published networks use a dozen other activations. They are like those of step activation03, with
other formulas; skim them, and come back for the one that your network uses.

    relu6, hardtanh           cut off on both sides          MobileNetV2
    hardsigmoid, hardswish    from straight lines, no exp    MobileNetV3
    threshold                 x, or a value, below a limit
    celu, selu                elu, with other scales         nets that normalise themselves
    mish                      x tanh(softplus(x))            YOLOv4
    softsign, tanhshrink      x / (1 + |x|), x - tanh(x)
    glu                       one half gates the other       WaveNet, convolutional translation
    gumbel_softmax            a softmax that samples         VAEs of classes

Activations of straight lines are Activation classes of two formulas, made by the function `curve`.
The others are formulas of existing operations.

The trap is the corner, where two lines meet: the slope is 0 there, as in PyTorch, while that of
clamp is 1. The demo shows it.

New: curve, and the functions and modules of the table.
Try: hardtanh of ones, and its gradient; then the same with clamp(-1, 1).
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
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.device import cpu
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.comparison import Where
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import empty_like, zeros_like
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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    x = tensor([-4.0, -1.0, 1.0, 4.0], requires_grad=True)
    curves = hardtanh, relu6, hardsigmoid, hardswish, celu, selu, mish, softsign, tanhshrink
    for function in curves:
        y = function(x)
        slope = grad(y.sum(), x)[0]
        shown = (" ".join(f"{value:5.2f}" for value in z.tolist()) for z in (y, slope))
        print(f"{function.__name__:12}", "   ".join(shown))
    # -> hardtanh     -1.00 -1.00  1.00  1.00    0.00  0.00  0.00  0.00
    # -> relu6         0.00  0.00  1.00  4.00    0.00  0.00  1.00  1.00
    # -> hardsigmoid   0.00  0.33  0.67  1.00    0.00  0.17  0.17  0.00
    # -> hardswish    -0.00 -0.33  0.67  4.00    0.00  0.17  0.83  1.00
    # -> celu         -0.98 -0.63  1.00  4.00    0.02  0.37  1.00  1.00
    # -> selu         -1.73 -1.11  1.05  4.20    0.03  0.65  1.05  1.05
    # -> mish         -0.07 -0.30  0.87  4.00   -0.05  0.06  1.05  1.00
    # -> softsign     -0.80 -0.50  0.50  0.80    0.04  0.25  0.25  0.04
    # -> tanhshrink   -3.00 -0.24  0.24  3.00    1.00  0.58  0.58  1.00
    print("at its corners clamp has the slope", grad(x.clamp(-1, 1).sum(), x)[0].tolist()[1:3])
    # -> at its corners clamp has the slope [1.0, 1.0]
    print((threshold(x, 0.5, 9.0) + 0).tolist(), grad(threshold(x, 0.5, 9.0).sum(), x)[0].tolist())
    # -> [9.0, 9.0, 1.0, 4.0] [0.0, 0.0, 1.0, 1.0]
    print(glu(x * 100).tolist())  # -> [-400.0, -100.0]

    manual_seed(0)
    logits = tensor([1.0, 3.0, 6.0]).log().expand(10000, 3)
    print((gumbel_softmax(logits, hard=True).mean(0) * 10).round().tolist())  # -> [1.0, 3.0, 6.0]
    print(gumbel_softmax(logits[:1], tau=9.0).sum().item())  # -> 1.000

    print(Sequential(ReLU6(inplace=True), Hardtanh(-2, 2), Threshold(0.1, 20), GLU(dim=1)))
    # -> Sequential(
    # ->   (0): ReLU6(inplace=True)
    # ->   (1): Hardtanh(min_val=-2, max_val=2)
    # ->   (2): Threshold(threshold=0.1, value=20)
    # ->   (3): GLU(dim=1)
    # -> )
    print(Hardswish(inplace=True), Hardsigmoid(inplace=True))  # -> Hardswish() Hardsigmoid()
    for wrong in (lambda: hardtanh(x, 1, 0), lambda: celu(x, 0), lambda: glu(x[:3])):
        try:
            wrong()
        except (ValueError, RuntimeError) as error:
            print(error)
    # -> min_val 1 cannot be greater than max_val 0
    # -> ZeroDivisionError: alpha cannot be 0 for CELU
    # -> Halving dimension must be even, but the input has tinytorch.Size([3])
