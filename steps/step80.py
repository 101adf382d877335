"""Step 80: What stands between two layers

Two linear layers in a row are one linear layer: W2 (W1 x) = (W2 W1) x. What makes a network more is
the bend in between, the activation. relu, tanh and sigmoid are there since step 50. These are the
others that people use, each one line of mathematics:

    leaky_relu   x, or s x below 0            no unit is ever cut off from its gradient
    elu          x, or a (exp(x) - 1)         smooth, and its mean is nearer to 0
    gelu         x P(x)                       P: the share of the normal distribution below x
    silu         x sigmoid(x)                 nearly the same, and cheaper
    softplus     log(1 + exp(x))              a smooth relu
    logsigmoid   log(sigmoid(x))              for losses

Each is a Function of its own, because a composition fails where numbers are large. exp(1000) is
inf, and so is log(1 + inf), where softplus(1000) is 1000; in backward inf / inf is nan. So exp is
given what is not positive: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). Or its inf stands
below a fraction line, and nowhere else: 1 / (1 + inf) is 0, which is right.

With inplace=True the result is written into the input's memory. Its backward may need what was
there, so a copy is kept: in place saves nothing here, but programs that ask for it run.

As modules they need no code of their own. FunctionModule looks at the signature of a function: what
comes after the input becomes the module's arguments, its attributes and its text. The losses are
made in the same way, with two inputs; here are the first, those for numbers (the next step has
those for classes). mse_loss warns where shapes differ: [n, 1] minus [n] is [n, n] by broadcasting,
a loss that goes down and teaches nothing: no error tells you.

New: Curve and the activations, FunctionModule and the modules made with it; reduce, mse_loss,
l1_loss, smooth_l1_loss. Moved: linear.py and dropout.py.
Try: in Elu.slope give exp the x itself, and look at the gradient of elu at 1000.
"""

import importlib
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import assign, check_writable
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import linspace, zeros
from tinytorch.ops.elementwise import erf_of, sigmoid, tanh
from tinytorch.ops.elementwise import relu as plain_relu
from tinytorch.ops.random import manual_seed
from tinytorch.ops.reduction import wide
from tinytorch.ops.softmax import log_softmax, softmax

# Importing the modules of the operations brings their methods to Tensor.
for name in ("arithmetic", "comparison", "reduction", "sampling", "shape"):
    importlib.import_module(f"tinytorch.ops.{name}")


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


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none"). ValueError for other words."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else getattr(losses, reduction)()


def difference(input: Tensor, target: Tensor) -> Tensor:
    """input - target. A warning where their shapes differ: broadcasting is seldom what is meant."""
    d, a, b = input - target, tuple(target.array.shape), tuple(input.array.shape)
    if a != b:
        text = f"Using a target size {a} that is different to the input size {b}"
        warnings.warn(text + ": check that the broadcasting is meant.", stacklevel=3)
    return d


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(input - target)^2."""
    d = difference(input, target)
    return reduce(d * d, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return reduce(difference(input, target).abs(), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) for d = |input - target| below beta; beyond, the line of slope 1 that goes on
    (Girshick, 2015). RuntimeError for a negative beta."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    d = difference(input, target).abs()
    near = d.clamp(max=beta)
    return reduce(near * (d - 0.5 * near) / beta if beta else d, reduction)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    x = tensor([-2.0, 0.0, 2.0])
    for curve in (relu, leaky_relu, elu, gelu, silu, softplus, logsigmoid):
        print(f"{curve.__name__:10}", " ".join(f"{value:7.4f}" for value in curve(x).tolist()))
    # -> relu        0.0000  0.0000  2.0000
    # -> leaky_relu -0.0200  0.0000  2.0000
    # -> elu        -0.8647  0.0000  2.0000
    # -> gelu       -0.0455  0.0000  1.9545
    # -> silu       -0.2384  0.0000  1.7616
    # -> softplus    0.1269  0.6931  2.1269
    # -> logsigmoid -2.1269 -0.6931 -0.1269

    # Large numbers, in values and in gradients.
    for curve in (softplus, logsigmoid, silu, elu):
        x = tensor([-1000.0, 1000.0], requires_grad=True)
        y = curve(x)
        y.sum().backward()
        print(curve.__name__, (y + 0).tolist(), (x.grad + 0).tolist())
    # -> softplus [0.0, 1000.0] [0.0, 1.0]
    # -> logsigmoid [-1000.0, 0.0] [1.0, 0.0]
    # -> silu [0.0, 1000.0] [0.0, 1.0]
    # -> elu [-1.0, 1000.0] [0.0, 1.0]
    x = tensor([1000.0], requires_grad=True)
    y = (1 + x.exp()).log()
    y.backward()
    print("log(1 + exp(1000)) as written:", y.item(), x.grad.item())
    # -> log(1 + exp(1000)) as written: inf nan

    # Modules from functions.
    print(Sequential(LeakyReLU(0.2), GELU(approximate="tanh"), Softmax(dim=1), ReLU(inplace=True)))
    # -> Sequential(
    # ->   (0): LeakyReLU(negative_slope=0.2)
    # ->   (1): GELU(approximate='tanh')
    # ->   (2): Softmax(dim=1)
    # ->   (3): ReLU(inplace=True)
    # -> )
    inside = tensor([-1.0, 2.0]) * 1
    print(
        LeakyReLU(0.5, inplace=True)(inside) is inside, inside
    )  # -> True tensor([-0.5000,  2.0000])

    # Without a bend a network is a line, however deep it is.
    manual_seed(0)
    x = linspace(-2, 2, 41).reshape(-1, 1)
    target = x.square()

    def train(model):
        for _ in range(300):
            loss = mse_loss(model(x), target)
            model.zero_grad()
            loss.backward()
            with no_grad():
                for param in model.parameters():
                    param -= 0.05 * param.grad
        return loss.item()

    bend = train(Sequential(Linear(1, 20), Tanh(), Linear(20, 1)))
    line = train(Sequential(Linear(1, 20), Linear(20, 1)))
    best = (target - target.mean()).square().mean().item()
    print(f"x^2: two layers {line:.2f}, the best line {best:.2f}")
    # -> x^2: two layers 1.57, the best line 1.57
    print("with tanh in between it is better by far:", bend < 0.1)
    # -> with tanh in between it is better by far: True

    # Losses for numbers: the square, the absolute value, and one that is both.
    error = tensor([0.1, 1.0, 10.0])
    for loss in (mse_loss, l1_loss, smooth_l1_loss):
        print(loss.__name__, loss(error, zeros(3), reduction="none"))
    # -> mse_loss tensor([1.0000e-02, 1.0000e+00, 1.0000e+02])
    # -> l1_loss tensor([ 0.1000,  1.0000, 10.0000])
    # -> smooth_l1_loss tensor([5.0000e-03, 5.0000e-01, 9.5000e+00])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mse_loss(zeros(3, 1), zeros(3))
    print(str(caught[0].message).partition(":")[0])
    # -> Using a target size (3,) that is different to the input size (3, 1)
