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

New: curve, and the functions and modules of the table. Moved: those of step activation11, to
activation.py.
Try: hardtanh of ones, and its gradient; then the same with clamp(-1, 1).
"""

import importlib
from collections.abc import Callable

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.activation import Activation, FunctionModule, activate, elu, softplus
from tinytorch.ops.creation import empty_like, zeros_like
from tinytorch.ops.joining import chunk
from tinytorch.ops.softmax import softmax

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
    from tinytorch.nn.container import Sequential
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
