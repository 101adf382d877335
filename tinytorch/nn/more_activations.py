"""More activations: of straight pieces, of exponentials, and gates."""

from collections.abc import Callable

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.activation import Activation, FunctionModule, activate, elu, softplus
from tinytorch.ops.creation import empty_like, zeros_like
from tinytorch.ops.joining import chunk
from tinytorch.ops.softmax import softmax


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
