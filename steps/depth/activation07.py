"""Step activation07: gelu by tanh in the package's dress

Step 58b built this formula, and step 60a made it one node. GPT-2 was trained with it, so its
weights need it: approximate="tanh". It differs from the exact one by 0.0005 at most.

It is one more pair of formulas, GeluActivation. (Activation.name removes the ending, so both appear
as GeluBackward0 in the graph, as in PyTorch.)

The trap: with the wrong one of the two a network works, but a little worse, and there is no error.
Look at the configuration of the weights that you load.

Changed: gelu. New: GeluActivation.
Try: approximate="sigmoid", x s(1.702 x), is a third formula. How far off is it?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
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
    """y = x P(x), P the normal distribution function;   dy/dx = P(x) + x P'(x).

    P(x) is kept, since it takes most of the time; only a second derivative computes it again.
    """

    saves = 0, None

    def share(ctx, x: Any) -> Any:
        return 0.5 + 0.5 * erf_of(x * math.sqrt(0.5), ctx.xp)

    def forward(ctx, x: Any) -> Any:
        share = ctx.share(x)
        ctx.save_for_backward(x, share)
        return x * share

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


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016).

    approximate="tanh" is a formula without erf, off by 0.0005 at most.
    Raises:
        RuntimeError: for another value of `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return (Gelu if approximate == "none" else GeluActivation).apply(input)


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

    importlib.import_module("tinytorch.core.printing")

    x = linspace(-6, 6, 1201, requires_grad=True)
    y, almost = gelu(x), gelu(x, approximate="tanh")
    print(f"off by {(y - almost).abs().max().item():.5f} at most")  # -> off by 0.00047 at most
    slopes = grad(y.sum(), x)[0], grad(almost.sum(), x)[0]
    print(f"their slopes: off by {(slopes[0] - slopes[1]).abs().max().item():.4f}")
    # -> their slopes: off by 0.0009
    print(y.grad_fn.name(), almost.grad_fn.name())  # -> GeluBackward0 GeluBackward0
    try:
        gelu(x, approximate="fast")
    except RuntimeError as error:
        print(error)  # -> approximate argument must be either none or tanh.
