"""Step activation04: softplus, logsigmoid and silu without overflow

Three more activations, all based on the sigmoid s(x) = 1 / (1 + exp(-x)):

    softplus      log(1 + exp(x))        a smooth relu; its slope is the sigmoid
    logsigmoid    -softplus(-x)          the logarithm of a probability
    silu          x s(x)                 like relu, but slightly negative below 0; also called swish

By this formula softplus(1000) is inf in float32, because exp(1000) is, and its gradient is nan,
inf / inf. But for large x, softplus(x) is x. So we take max(x, 0) out of the logarithm:

    log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))

This is the same function, and exp gets no positive numbers. In the slope exp may be inf, but only
in a denominator: 1 / (1 + inf) is 0, which is right.

PyTorch's softplus has two options: beta makes the bend sharper, and where beta x is above
`threshold` the result is x itself. logsigmoid has no such limit: for x = 30 it is small, but not 0.

The class is called SoftplusActivation, because the module needs the short name; name() removes the
ending in the graph.

New: Silu, SoftplusActivation, Activation.name; silu, softplus, logsigmoid.
Try: softplus with threshold=1 at 0.9, 1 and 1.1. What does the limit cost?
"""

import importlib
import math
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.elementwise import sigmoid, tanh

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

    importlib.import_module("tinytorch.core.printing")

    x = tensor([-1000.0, -2.0, 2.0, 1000.0], requires_grad=True)

    def written_down(x):
        return (1 + x.exp()).log()

    with np.errstate(over="ignore", invalid="ignore"):
        y = written_down(x)
        print("log(1 + exp(1000)):", y[3].item(), "slope", grad(y.sum(), x)[0][3].item())
    # -> log(1 + exp(1000)): inf slope nan
    for curve in (softplus, logsigmoid, silu):
        y, slope = (curve(x) + 0).tolist(), (grad(curve(x).sum(), x)[0] + 0).tolist()
        print(f"{curve.__name__:10}", *(f"{v:8.3f}" for v in y), *(f"{v:6.3f}" for v in slope))
    # -> softplus      0.000    0.127    2.127 1000.000  0.000  0.119  0.881  1.000
    # -> logsigmoid -1000.000   -2.127   -0.127    0.000  1.000  0.881  0.119  0.000
    # -> silu          0.000   -0.238    1.762 1000.000  0.000 -0.091  1.091  1.000
    print("sharper:", f"{softplus(x, beta=5.0)[2].item():.6f}", softplus(x).grad_fn.name())
    # -> sharper: 2.000009 SoftplusBackward0
    x = tensor([30.0], requires_grad=True)
    print(logsigmoid(x).item(), softplus(x).item(), grad(softplus(x, beta=2.0), x)[0].item())
    # -> -9.357622912219837e-14 30.0 1.0
