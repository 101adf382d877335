"""Step activation10: gelu in fewer passes over memory

Forward and backward of gelu on a hidden layer of 1536 x 512 numbers take 3.5 times as long as
PyTorch's. In a GPT's training step no other operation lost as much time. Each operation of NumPy is
a pass: it reads arrays, does one thing, and writes a new array. Step activation09 makes about 35 of
them. Only erf goes through the cache in chunks (step elementwise18); the passes before and after it
read and write 3 MB each.

Three changes bring the time to 0.6 of that:

    chunks      the whole formula runs on one chunk, then on the next
    constants   P(x) = (1 + erf(x / sqrt(2))) / 2 and erf(z) = tanh(z p(z^2)) become one formula,
                P(x) = (1 + tanh(x q(x^2))) / 2: the division by sqrt(2) is in q's coefficients
    the slope   P(x) + x P'(x) is computed while P(x) and x^2 are in the cache, and kept in place of
                P(x). backward is one product

`out=` and `*=` write into memory that is in the cache already, where `a * b` takes new memory.

gelu_of is dispatched on the array's type (step elementwise07): the plain formula serves Tensors,
other types and GPUs, where a chunk would be one more launch.

The trap: without a gradient the slope is wasted, and forward takes half as long again.
needs_input_grad (step 62b) tells whether a gradient may be asked for.

New: NORMAL_FLOAT32, gelu_of, gelu_of_numpy. Changed: Gelu.
Try: give cpu.backend.chunk_elements the size of the whole array, and measure again.
"""

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.inplace import assign, check_writable
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.device import cpu
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.comparison import Where
from tinytorch.ops.conversion import clone
from tinytorch.ops.elementwise import require_tensors, sigmoid, tanh
from tinytorch.ops.erf import ERF_FLOAT32, erf_of, polynomial
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


# P(x), the normal distribution function, is (1 + tanh(x p)) / 2 with a polynomial p in x^2: that of
# erf, for x / sqrt(2).
NORMAL_FLOAT32 = tuple(c * 0.5 ** (k + 0.5) for k, c in enumerate(ERF_FLOAT32))


@functools.singledispatch
def gelu_of(x: Any, xp: Any, need_slope: bool) -> tuple:
    """gelu(x) = x P(x), and its derivative P(x) + x P'(x), or None where that is not needed."""
    share = 0.5 + 0.5 * erf_of(x * math.sqrt(0.5), xp)
    slope = share + x * xp.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi) if need_slope else None
    return x * share, slope


@gelu_of.register(np.ndarray)
def gelu_of_numpy(x: np.ndarray, xp: Any, need_slope: bool) -> tuple:
    """The same. For float32 each chunk goes through all passes while it is in the cache, and most
    of them write into memory that is there."""
    if x.dtype != np.float32:
        return gelu_of.dispatch(object)(x, xp, need_slope)
    row, size = x.reshape(-1), cpu.backend.chunk_elements
    y, slope = np.empty_like(row), np.empty_like(row) if need_slope else None
    for i in range(0, len(row), size):
        part = slice(i, i + size)
        a = row[part]
        square = a * a
        share = polynomial(NORMAL_FLOAT32, square)
        share *= a
        np.tanh(share, out=share)
        share *= 0.5
        share += 0.5
        np.multiply(a, share, out=y[part])
        if need_slope:
            d = slope[part]
            square *= -0.5
            np.exp(square, out=d)
            d *= a
            d *= math.sqrt(0.5 / math.pi)
            d += share
    return y.reshape(x.shape), slope.reshape(x.shape) if need_slope else None


class Gelu(Activation):
    """y = x P(x), P the normal distribution function;   dy/dx = P(x) + x P'(x).

    dy/dx is computed together with y, in fewer passes than on its own, and kept; only a second
    derivative computes it again.
    """

    saves = 0, None

    def forward(ctx, x: Any) -> Any:
        y, slope = gelu_of(wide(x), ctx.xp, ctx.needs_input_grad[0])
        ctx.save_for_backward(x, slope)
        return y.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, slope = ctx.saved
        slope = gelu_of(x, ctx.xp, True)[1] if isinstance(x, Tensor) else slope
        return g * slope


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


def activate(function: Callable, input: Tensor, inplace: bool, *options: float) -> Tensor:
    """function(input, *options), written into `input` if `inplace`.

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
    if not inplace:
        return function(input, *options)
    check_writable(input)
    # backward needs what is overwritten here: it keeps a copy.
    return assign(input, function(clone(input), *options))


@checked
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu_() if inplace else input.relu()


@checked
def relu_(input: Tensor) -> Tensor:
    """relu, written into the input."""
    return input.relu_()


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return activate(LeakyRelu.apply, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where it is positive, alpha * (exp(input) - 1) elsewhere (Clevert et al., 2015)."""
    return activate(Elu.apply, input, inplace, alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input times the normal distribution's share below it (Hendrycks and Gimpel, 2016).

    approximate="tanh" is a formula without erf, off by 0.0005 at most.
    Raises:
        RuntimeError: for another value of `approximate`.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return activate((Gelu if approximate == "none" else GeluActivation).apply, input, False)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input), also called swish (Elfwing et al., 2017)."""
    return activate(Silu.apply, input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta, a smooth relu; input itself above threshold / beta."""
    return activate(SoftplusActivation.apply, input, False, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), right also where the sigmoid is too small for a float."""
    return -activate(SoftplusActivation.apply, -input, False, 1.0, math.inf)


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

    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((1536, 512)).astype(np.float32)
    g = rng.standard_normal((1536, 512)).astype(np.float32)

    def both_before():
        """Forward and backward of step activation09."""
        share = 0.5 + 0.5 * erf_of(numbers * math.sqrt(0.5), np)
        y = numbers * share
        slope = share + numbers * np.exp(numbers * numbers * -0.5) * math.sqrt(0.5 / math.pi)
        return y, g * slope

    def both_now():
        y, slope = gelu_of(numbers, np, True)
        return y, g * slope

    pairs = zip(both_before(), both_now(), strict=True)
    print(all(np.allclose(*pair, atol=1e-6) for pair in pairs))  # -> True
    before, now = (min(timeit.repeat(both, number=1, repeat=9)) for both in (both_before, both_now))
    print(f"forward and backward take {now / before:.2f} of the time")  # -> ...
    forward = min(timeit.repeat(lambda: gelu_of(numbers, np, False), number=1, repeat=9))
    print(f"forward alone, without the slope: {forward / now:.2f} of both")  # -> ...

    # float64 takes the plain formula. It shows how exact the other one is.
    x = tensor(numbers, requires_grad=True)
    exact, slope = gelu_of(numbers.astype(np.float64), np, True)
    y = gelu(x)
    print(np.abs(y.array - exact).max() < 1e-6)  # -> True
    print(np.abs(grad(y.sum(), x)[0].array - slope).max() < 1e-6)  # -> True
    ends = np.array([-np.inf, -20, -1e-40, 0, 1e-40, 20, np.inf, np.nan], np.float32)
    print(gelu(tensor(ends)).tolist()[1:])  # -> [-0.0, -0.0, 0.0, 0.0, 20.0, inf, nan]

    # The slope exists only where it may be needed.
    print(gelu(x).grad_fn.saved[1].shape, gelu_of(numbers, np, False)[1])  # -> (1536, 512) None

    # A second derivative: the plain formula on Tensors, which has a history.
    x = tensor([0.0, 1.0], requires_grad=True)
    (first,) = grad(gelu(x).sum(), x, create_graph=True)
    print([f"{value:.4f}" for value in grad(first.sum(), x)[0].tolist()])  # -> ['0.7979', '0.2420']
