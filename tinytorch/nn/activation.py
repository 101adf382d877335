"""Activations: what stands between two linear layers, so that two of them are more than one."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import assign, check_writable
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
from tinytorch.ops.conversion import clone
from tinytorch.ops.elementwise import erf_of, sigmoid, tanh
from tinytorch.ops.elementwise import relu as plain_relu
from tinytorch.ops.reduction import wide
from tinytorch.ops.softmax import log_softmax, softmax


class Curve(Function):
    """y = f(x), element for element: a subclass says `value`, f, and `slope`, g times dy/dx.

    float16 is computed as float32 and rounded once. exp never gets a large positive number where
    its result counts: that would be inf, and inf * 0 is nan.
    """

    def forward(ctx, x: Any, *options: float) -> Any:
        ctx.options = options
        ctx.save_for_backward(x)
        return ctx.value(wide(x), *options).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return ctx.slope(g, *ctx.saved, *ctx.options)


class LeakyRelu(Curve):
    """y = x where x > 0, s x elsewhere;   dy/dx = 1, or s."""

    def value(ctx, x: Any, s: float) -> Any:
        return ctx.xp.maximum(x, 0) + s * ctx.xp.minimum(x, 0)

    def slope(ctx, g: Any, x: Any, s: float) -> Any:
        return g * s + g * (x > 0) * (1 - s)


class Elu(Curve):
    """y = x where x > 0, a (exp(x) - 1) elsewhere;   dy/dx = 1, or a exp(x)."""

    def value(ctx, x: Any, a: float) -> Any:
        return ctx.xp.maximum(x, 0) + a * ctx.xp.expm1(ctx.xp.minimum(x, 0))

    def slope(ctx, g: Any, x: Any, a: float) -> Any:
        return g * (x > 0) + g * (x <= 0) * ctx.xp.exp(ctx.xp.clip(x, None, 0)) * a


class Gelu(Curve):
    """y = x P(x), P the share of the normal distribution below x;   dy/dx = P(x) + x P'(x)."""

    def share(ctx, x: Any) -> Any:
        x = x * math.sqrt(0.5)
        return 0.5 + 0.5 * (x.erf() if isinstance(x, Tensor) else erf_of(x, ctx.xp))

    def value(ctx, x: Any) -> Any:
        return x * ctx.share(x)

    def slope(ctx, g: Any, x: Any) -> Any:
        return g * (ctx.share(x) + x * ctx.xp.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi))


class GeluTanh(Curve):
    """y = x (1 + t) / 2 with t = tanh(c (x + 0.044715 x^3)), c = sqrt(2 / pi): almost Gelu."""

    def tanh(ctx, x: Any) -> Any:
        return ctx.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x)))

    def value(ctx, x: Any) -> Any:
        return 0.5 * x * (1 + ctx.tanh(x))

    def slope(ctx, g: Any, x: Any) -> Any:
        t = ctx.tanh(x)
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * (x * x))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


class Silu(Curve):
    """y = x s(x), s the sigmoid;   dy/dx = s + x s (1 - s)."""

    def value(ctx, x: Any) -> Any:
        return x / (1 + ctx.xp.exp(-x))

    def slope(ctx, g: Any, x: Any) -> Any:
        s = 1 / (1 + ctx.xp.exp(-x))
        return g * s * (1 + x * (1 - s))


class SoftplusCurve(Curve):
    """y = log(1 + exp(b x)) / b, or x where b x > limit;   dy/dx = 1 / (1 + exp(-b x)), or 1."""

    def value(ctx, x: Any, b: float, limit: float) -> Any:
        soft = ctx.xp.maximum(x * b, 0) + ctx.xp.log1p(ctx.xp.exp(-ctx.xp.abs(x * b)))
        return x * (x * b > limit) + soft * (x * b <= limit) / b

    def slope(ctx, g: Any, x: Any, b: float, limit: float) -> Any:
        return g * (x * b > limit) + g * (x * b <= limit) / (1 + ctx.xp.exp(x * -b))


def activate(function: type, input: Tensor, inplace: bool, *options: float) -> Tensor:
    """function.apply, the result written into `input` if that is wished.

    NotImplementedError for integers.
    """
    if not input.is_floating_point():
        raise NotImplementedError(f"{function.__name__} is not implemented for {input.dtype!r}")
    if not inplace:
        return function.apply(input, *options)
    check_writable(input)
    # backward needs what is overwritten here: it keeps a copy.
    return assign(input, function.apply(clone(input), *options))


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return input.relu_() if inplace else plain_relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return activate(LeakyRelu, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, alpha * (exp(input) - 1) elsewhere (Clevert et al., 2015)."""
    return activate(Elu, input, inplace, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016).

    approximate="tanh" is a formula without erf, off by 0.0005 at most. RuntimeError for others.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return activate(Gelu if approximate == "none" else GeluTanh, input, False)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish (Elfwing et al., 2017)."""
    return activate(Silu, input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta, a smooth relu; input itself above threshold / beta."""
    return activate(SoftplusCurve, input, False, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), right also where the sigmoid is too small for a float."""
    return -activate(SoftplusCurve, -input, False, 1.0, math.inf)


class FunctionModule(Module):
    """A module that calls `function`. Its arguments are the options of this function, which become
    attributes: LeakyReLU(0.2).negative_slope is 0.2. A tensor among them becomes a buffer."""

    function: Callable[..., Tensor]
    inputs = 1  # how many arguments of the function come with each call

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        given = inspect.signature(self.function).bind(*[None] * self.inputs, *args, **kwargs)
        given.apply_defaults()
        self.options = list(given.arguments)[self.inputs :]
        for name in self.options:
            if isinstance(given.arguments[name], Tensor):
                self.register_buffer(name, given.arguments[name])
            else:
                setattr(self, name, given.arguments[name])

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *[getattr(self, name) for name in self.options])

    def extra_repr(self) -> str:
        shown = [(name, getattr(self, name)) for name in self.options]
        return ", ".join(f"{n}={v!r}" for n, v in shown if v is not None and v is not False)


class ReLU(FunctionModule):
    """relu as a module."""

    function = staticmethod(relu)


class LeakyReLU(FunctionModule):
    """leaky_relu as a module."""

    function = staticmethod(leaky_relu)


class ELU(FunctionModule):
    """elu as a module."""

    function = staticmethod(elu)


class GELU(FunctionModule):
    """gelu as a module."""

    function = staticmethod(gelu)


class SiLU(FunctionModule):
    """silu as a module."""

    function = staticmethod(silu)


class Softplus(FunctionModule):
    """softplus as a module."""

    function = staticmethod(softplus)


class LogSigmoid(FunctionModule):
    """logsigmoid as a module."""

    function = staticmethod(logsigmoid)


class Sigmoid(FunctionModule):
    """sigmoid as a module."""

    function = staticmethod(sigmoid)


class Tanh(FunctionModule):
    """tanh as a module."""

    function = staticmethod(tanh)


class Softmax(FunctionModule):
    """softmax as a module."""

    function = staticmethod(softmax)


class LogSoftmax(FunctionModule):
    """log_softmax as a module."""

    function = staticmethod(log_softmax)
