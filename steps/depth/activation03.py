"""Step activation03: Activation: a base class of two formulas

leaky_relu still has a corner. elu approaches a constant -a smoothly, which also brings the mean of
a layer's outputs nearer to 0 (Clevert et al., 2015):

    elu(x) = x where x > 0, a (exp(x) - 1) elsewhere         dy/dx = 1, or a exp(x)

Half of its Function would repeat LeakyRelu: save x, save the options, get them back. So a base
class, Activation, does that, and a subclass defines two formulas: `value`, and `slope`, which is g
times dy/dx.

The trap is exp. Both branches are computed for all elements and multiplied by 0 or 1. For x = 1000
exp(x) is inf, and 0 * inf is nan: the demo shows a gradient of nan where the curve is a straight
line. So exp only gets numbers that are not positive: exp(min(x, 0)). The value uses expm1(x) =
exp(x) - 1, which is exact for small x, where exp(x) rounds to 1 and the difference to 0.

Changed: LeakyRelu is an Activation. New: Activation, Elu, elu.
Try: in Elu.slope pass x itself to exp, and look at the gradient of elu at 1000.
"""

import importlib
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

    x = tensor([-1000.0, -2.0, 0.0, 2.0, 1000.0], requires_grad=True)

    def written_down(x):
        """elu as its definition says: both formulas, one chosen by a factor of 0 or 1."""
        return x * (x > 0) + (x.exp() - 1) * (x <= 0)

    with np.errstate(over="ignore", invalid="ignore"):
        print("as written:", written_down(x), "\n", grad(written_down(x).sum(), x)[0])
    # -> as written: tensor([-1.0000, -0.8647,  0.0000,  2.0000,     nan], grad_fn=<AddBackward0>)
    # ->  tensor([0.0000, 0.1353, 1.0000, 1.0000,    nan])
    print("elu:       ", (elu(x) + 0).detach(), "\n", grad(elu(x).sum(), x)[0])
    # -> elu:        tensor([-1.0000e+00, -8.6466e-01,  0.0000e+00,  2.0000e+00,  1.0000e+03])
    # ->  tensor([0.0000, 0.1353, 1.0000, 1.0000, 1.0000])
    print(grad(elu(x, alpha=2.0).sum(), x)[0])
    # -> tensor([0.0000, 0.2707, 2.0000, 1.0000, 1.0000])
    print(f"{elu(tensor([-1e-9])).item():.3g}", f"{tensor([-1e-9]).exp().item() - 1:.3g}")
    # -> -1e-09 0
    print((leaky_relu(x, 0.5) + 0).detach(), grad(leaky_relu(x, 0.5).sum(), x)[0])
    # -> tensor([-500.,   -1.,    0.,    2., 1000.]) tensor([0.5000, 0.5000, 0.5000, 1.0000, ...
