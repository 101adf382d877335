"""Step activation08: Activations: float16, and checks

The formulas of steps activation02 to activation07 accept any array. For float16 each operation
rounds: x / (1 + exp(-x)) has four, and the demo counts how many results differ from the exact
value, rounded once. Integers come back as floats of some type, or fail inside.

So Activation computes float16 as float32, as sums do (step 61f), and rounds once. And all
functions call `activate`, which refuses integers and objects that are not tensors.

    forward    wide(x): float32     value(...)     astype(x.dtype): rounded once

activate checks the options, too: elu(x, 1j) would lose its imaginary part. An infinite slope is
not multiplied by 0, which would be nan: leaky_relu(2, inf) is 2.

The trap: backward gets the saved x in float16, and computes the slope in it. A gradient that is
rounded a few times does little harm; a copy of x in float32 would take twice the memory of x.

Changed: Activation.forward, Gelu.forward, LeakyRelu, Elu, and all functions but relu.
New: activate.
Try: leave out `wide` in Activation.forward. How many results of silu are wrong then?
"""

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.comparison import Where
from tinytorch.ops.elementwise import require_tensors, sigmoid, tanh
from tinytorch.ops.erf import erf_of
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


class Gelu(Activation):
    """y = x P(x), P the normal distribution function;   dy/dx = P(x) + x P'(x).

    P(x) is kept, since it takes most of the time; only a second derivative computes it again.
    """

    saves = 0, None

    def share(ctx, x: Any) -> Any:
        return 0.5 + 0.5 * erf_of(x * math.sqrt(0.5), ctx.xp)

    def forward(ctx, x: Any) -> Any:
        share = ctx.share(wide(x))
        ctx.save_for_backward(x, share)
        return (x * share).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, share = ctx.saved
        share = ctx.share(x) if isinstance(x, Tensor) else share
        return g * (share + x * ctx.xp.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi))


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


def activate(function: Callable, input: Tensor, *options: float) -> Tensor:
    """function(input, *options).

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
    return function(input, *options)


@checked
def relu(input: Tensor) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu()


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return activate(LeakyRelu.apply, input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """input where it is positive, alpha * (exp(input) - 1) elsewhere (Clevert et al., 2015)."""
    return activate(Elu.apply, input, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016).

    approximate="tanh" is a formula without erf, off by 0.0005 at most.
    Raises:
        RuntimeError: for another value of `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return activate((Gelu if approximate == "none" else GeluActivation).apply, input)


def silu(input: Tensor) -> Tensor:
    """input * sigmoid(input), also called swish (Elfwing et al., 2017)."""
    return activate(Silu.apply, input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta, a smooth relu; input itself above threshold / beta."""
    return activate(SoftplusActivation.apply, input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), right also where the sigmoid is too small for a float."""
    return -activate(SoftplusActivation.apply, -input, 1.0, math.inf)


class ReLU(Module):
    """relu as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return relu(input)


class LeakyReLU(Module):
    """leaky_relu as a module."""

    def __init__(self, negative_slope: float = 0.01):
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Sigmoid(Module):
    """sigmoid as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return sigmoid(input)


class Tanh(Module):
    """tanh as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return tanh(input)


if __name__ == "__main__":
    from tinytorch.core.dtype import float16
    from tinytorch.ops.creation import linspace

    importlib.import_module("tinytorch.core.printing")

    x = linspace(-10, 10, 2001).to(float16)
    h = x.array
    exact = (h.astype("f8") / (1 + np.exp(-h.astype("f8")))).astype("f2")
    stepwise = h / (1 + np.exp(-h))
    print("rounded four times, wrong:", int((stepwise != exact).sum()), "of", len(h))
    # -> rounded four times, wrong: 612 of 2001
    print("rounded once, wrong:      ", int((silu(x).array != exact).sum()))
    # -> rounded once, wrong:       0
    print(gelu(x).dtype, softplus(x).dtype, logsigmoid(x).dtype, gelu(x, "tanh").dtype)
    # -> tinytorch.float16 tinytorch.float16 tinytorch.float16 tinytorch.float16

    for wrong in (
        lambda: silu(tensor([1, 2])),
        lambda: elu([1.0]),
        lambda: leaky_relu(tensor([True])),
        lambda: elu(x, 1j),
    ):
        try:
            wrong()
        except (TypeError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> NotImplementedError: this activation is not implemented for tinytorch.int64
    # -> TypeError: activation(): arguments must be Tensors, not list
    # -> NotImplementedError: this activation is not implemented for tinytorch.bool
    # -> RuntimeError: value cannot be converted to tinytorch.float64 without overflow: 1j

    for function in (leaky_relu, elu):
        x = tensor([2.0, -1.0], requires_grad=True)
        y = function(x, math.inf)
        y.sum().backward()
        print(y.tolist(), x.grad.tolist())
    # -> [2.0, -inf] [1.0, inf]
    # -> [2.0, -inf] [1.0, inf]
