"""Step activation11: Modules from functions

ReLU, LeakyReLU, Sigmoid and Tanh of steps activation01 and activation02 are repetitive: each option
of the function is an argument of __init__, then an attribute, then an argument of the call, then a
part of the repr. The other five activations would be forty more such lines.

The signature of the function contains all that. FunctionModule reads it once for each subclass:

    class LeakyReLU(FunctionModule, function=leaky_relu)
        leaky_relu(input, negative_slope=0.01, inplace=False)
                   ────   ───────────────────────────────────
                   forward          options: __init__, attributes, text

Python calls __init_subclass__ when a subclass is defined, with the keywords after its bases. bind
and apply_defaults match the arguments to the signature as a call does, errors included.

A loss has two inputs (`_inputs`). `options` limits a module to the first few options. An option
whose name ends in "weight" is a tensor and becomes a buffer: it moves and is saved with the module.

The trap: a function stored on a class becomes a method, and gets self. staticmethod prevents that.
(PyTorch writes these classes by hand, in torch.nn.modules.activation.)

Changed: ReLU, LeakyReLU, Sigmoid, Tanh. New: FunctionModule and the other modules.
Try: call ReLU(inplce=True), and look for the line that found the mistake.
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
from tinytorch.ops.elementwise import require_tensors, sigmoid, tanh
from tinytorch.ops.erf import ERF_FLOAT32, erf_of, polynomial
from tinytorch.ops.reduction import wide
from tinytorch.ops.scalar import checked_number

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


if __name__ == "__main__":
    from tinytorch.nn.modules.container import Sequential

    importlib.import_module("tinytorch.core.printing")

    print(
        Sequential(LeakyReLU(0.2), GELU(approximate="tanh"), ReLU(inplace=True), ELU(), Softplus())
    )
    # -> Sequential(
    # ->   (0): LeakyReLU(negative_slope=0.2)
    # ->   (1): GELU(approximate='tanh')
    # ->   (2): ReLU(inplace=True)
    # ->   (3): ELU(alpha=1.0)
    # ->   (4): Softplus(beta=1.0, threshold=20.0)
    # -> )
    print(LeakyReLU.__signature__)  # -> (negative_slope: float = 0.01, inplace: bool = False)
    x = tensor([-2.0, 0.0, 2.0])
    for bend in (
        ReLU(),
        LeakyReLU(),
        ELU(),
        GELU(),
        SiLU(),
        Softplus(),
        LogSigmoid(),
        Sigmoid(),
        Tanh(),
    ):
        print(f"{type(bend).__name__:10}", " ".join(f"{value:7.4f}" for value in bend(x).tolist()))
    # -> ReLU        0.0000  0.0000  2.0000
    # -> LeakyReLU  -0.0200  0.0000  2.0000
    # -> ELU        -0.8647  0.0000  2.0000
    # -> GELU       -0.0455  0.0000  1.9545
    # -> SiLU       -0.2384  0.0000  1.7616
    # -> Softplus    0.1269  0.6931  2.1269
    # -> LogSigmoid -2.1269 -0.6931 -0.1269
    # -> Sigmoid     0.1192  0.5000  0.8808
    # -> Tanh       -0.9640  0.0000  0.9640
    slope = LeakyReLU(0.5)
    slope.negative_slope = 0.25
    print(slope(x), ReLU(inplace=True)(x) is x)  # -> tensor([-0.5000,  0.0000,  2.0000]) True
    try:
        ReLU(0.1, 0.2)
    except TypeError as error:
        print(error)
    # -> too many positional arguments

    # Two inputs, a tensor as an option, and an option that is not shown.
    def distance(a, b, weight=None, power=2.0, scale=1.0):
        return scale * ((a - b).abs() ** power * weight).sum()

    class Distance(FunctionModule, function=distance, options=2):
        _inputs = 2

    compare = Distance(tensor([1.0, 10.0]), power=1.0)
    print(compare(tensor([1.0, 2.0]), tensor([3.0, 3.0])), list(compare.state_dict()))
    # -> tensor(12.) ['weight']
