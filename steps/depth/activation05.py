"""Step activation05: gelu, the exact one

Step 58b built gelu with tanh, since NumPy has no erf. Step elementwise17 has made one, so here is
PyTorch's default, x times the exact share of normal numbers below x:

    gelu(x) = x P(x)         P: the distribution function of the normal distribution
    dy/dx   = P(x) + x P'(x)     P(x) = (1 + erf(x / sqrt(2))) / 2

P'(x) is the bell curve exp(-x^2 / 2) / sqrt(2 pi).

The trap: gelu is not monotonic. It falls to -0.17 at x = -0.75 and rises again towards 0, so two
inputs may have the same output.

(PyTorch: nn.functional.gelu.)

New: Gelu, gelu.
Try: gelu(x) - gelu(-x) for some x, on paper first. What is left?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.erf import erf_of

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Activation(Function):
    """y = f(x), element for element: a subclass gives `value`, f, and `slope`, g times dy/dx.

    exp never gets a large positive number where its result counts: that would be inf, and inf * 0
    is nan.
    """

    saves = (0,)

    def forward(ctx, x: Any, *options: float) -> Any:
        ctx.options = options
        ctx.save_for_backward(x)
        return ctx.value(x, *options)

    def backward(ctx, g: Any) -> Any:
        return ctx.slope(g, *ctx.saved, *ctx.options)

    def name(ctx) -> str:
        return type(ctx).__name__.removesuffix("Activation") + "Backward0"


class LeakyRelu(Activation):
    """y = x where x > 0, s x elsewhere;   dy/dx = 1, or s."""

    def value(ctx, x: Any, s: float) -> Any:
        return ctx.xp.maximum(x, 0) + s * ctx.xp.minimum(x, 0)

    def slope(ctx, g: Any, x: Any, s: float) -> Any:
        return g * s + g * (x > 0) * (1 - s)


class Elu(Activation):
    """y = x where x > 0, a (exp(x) - 1) elsewhere;   dy/dx = 1, or a exp(x)."""

    def value(ctx, x: Any, a: float) -> Any:
        return ctx.xp.maximum(x, 0) + a * ctx.xp.expm1(ctx.xp.minimum(x, 0))

    def slope(ctx, g: Any, x: Any, a: float) -> Any:
        return g * (x > 0) + g * (x <= 0) * ctx.xp.exp(ctx.xp.clip(x, None, 0)) * a


class Gelu(Activation):
    """y = x P(x), P the normal distribution function;   dy/dx = P(x) + x P'(x)."""

    def share(ctx, x: Any) -> Any:
        return 0.5 + 0.5 * erf_of(x * math.sqrt(0.5), ctx.xp)

    def value(ctx, x: Any) -> Any:
        return x * ctx.share(x)

    def slope(ctx, g: Any, x: Any) -> Any:
        return g * (ctx.share(x) + x * ctx.xp.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi))


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


@checked
def relu(input: Tensor) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu()


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return LeakyRelu.apply(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """input where it is positive, alpha * (exp(input) - 1) elsewhere (Clevert et al., 2015)."""
    return Elu.apply(input, alpha)


def gelu(input: Tensor) -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016)."""
    return Gelu.apply(input)


def silu(input: Tensor) -> Tensor:
    """input * sigmoid(input), also called swish (Elfwing et al., 2017)."""
    return Silu.apply(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta, a smooth relu; input itself above threshold / beta."""
    return SoftplusActivation.apply(input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), right also where the sigmoid is too small for a float."""
    return -SoftplusActivation.apply(-input, 1.0, math.inf)


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
    from tinytorch.autograd.backward import grad
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")

    print(gelu(tensor([-2.0, 0.0, 2.0])))  # -> tensor([-0.0455,  0.0000,  1.9545])
    manual_seed(0)
    share = (randn(100_000) < 1.0).float().mean().item()
    print(f"P(1) by counting {share:.2f}, by gelu {gelu(tensor([1.0])).item():.4f}")
    # -> P(1) by counting 0.84, by gelu 0.8413

    x = linspace(-6, 6, 1201, requires_grad=True)
    y = gelu(x)
    print(f"smallest: {y.min().item():.3f} at {x[y.argmin()].item():.2f}")
    # -> smallest: -0.170 at -0.75
    (slope,) = grad(y.sum(), x)
    print(
        f"slope at -1, 0, 6: {slope[500].item():.2f} {slope[600].item():.2f} {slope[-1].item():.2f}"
    )
    # -> slope at -1, 0, 6: -0.08 0.50 1.00
