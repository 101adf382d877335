"""Step activation06: gelu: what backward can reuse

backward of step activation05 computes P(x) again, with erf, which takes most of its time: with P(x)
kept from forward it would be several times as fast, as the demo measures. An Activation keeps x
alone.

So Gelu has a forward and a backward of its own. forward saves P(x) beside x: an array of the size
of x, until backward has run. PyTorch computes it again, in a single pass; here each operation is a
pass over memory, and the array is the smaller price.

The trap: a saved array has no history (step 33). The second derivative differentiates P(x), and
would take it for a constant. So backward computes it again where x is a Tensor. `saves = 0, None`
says that the first saved value is input 0, and the second neither input nor output (step 32e).

Changed: Gelu.
Try: leave out `if isinstance(x, Tensor)`, and use the saved share always. Which line changes?
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
    import timeit

    from tinytorch.autograd.backward import grad
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    # The time of backward, with P(x) kept and with P(x) computed again.
    many = randn(1000, 1000)
    node = gelu(many.requires_grad_()).grad_fn
    kept = min(timeit.repeat(lambda: node.backward(many.array), number=1))
    erf = min(timeit.repeat(lambda: node.share(many.array), number=1))
    longer = (kept + erf) / kept
    print(f"computing P again makes backward {longer:.1f} times as long")  # -> ...

    # The second derivative, where P(x) has to have a history.
    x = tensor([0.0], requires_grad=True)
    (first,) = grad(gelu(x).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    print(f"second derivative at 0: {second.item():.4f} = {math.sqrt(2 / math.pi):.4f}")
    # -> second derivative at 0: 0.7979 = 0.7979
