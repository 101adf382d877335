"""Step init03: Xavier initialisation; normal or uniform weights

A layer from 400 to 25 numbers has fan_in 400 and fan_out 25. kaiming with fan_in preserves the
signal, and the gradient shrinks to a quarter; with fan_out the signal grows to four times its size.
The demo shows both. Xavier Glorot's rule (2010) is a compromise, for tanh and similar activations:

    v = gain^2 * 2 / (fan_in + fan_out)

The rule gives a variance; the distribution may be normal or uniform. Numbers from [-b, b) have the
variance b^2 / 3, so b = sqrt(3 v). Uniform numbers have no outliers, and are faster to draw.

Two rules and two distributions make four functions, which are nearly equal. So a rule is a function
that takes the drawing function and returns the function that fills a tensor:

    kaiming_normal_ = kaiming(normal_of_std)        kaiming_uniform_ = kaiming(uniform_of_std) ...

The trap: in kaiming_uniform_ the argument `a` is the slope of leaky_relu, in uniform_ the lower
bound. kaiming_uniform_(w, a=sqrt(5)), as in PyTorch's Linear, draws from [-1/sqrt(n), 1/sqrt(n)).

(The gain of tanh, 5/3, keeps the signal of 30 layers in the demo. The gradient grows by 9 % in
each, and is 13 times as large at the input.)

Changed: kaiming_normal_. New: uniform_of_std, normal_of_std, xavier, kaiming, xavier_uniform_,
xavier_normal_, kaiming_uniform_.
Try: derive [-1/sqrt(n), 1/sqrt(n)) from a=sqrt(5) on paper.
"""

import importlib
import math
from collections.abc import Callable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import Generator

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


Source = Generator | None  # where the random numbers come from: None is the default generator


# The inverse of how much a nonlinearity shrinks its signal: the gain that makes up for it.
NO_GAIN = "linear sigmoid conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"


GAINS = dict.fromkeys(NO_GAIN.split(), 1) | {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain for a nonlinearity by name; `param` is the slope of "leaky_relu" (0.01).

    Raises:
        ValueError: for an unknown name.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Source = None) -> Tensor:
    """Uniform numbers from [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0, std: float = 1, generator: Source = None) -> Tensor:
    """Normal numbers."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same number everywhere."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out): how many numbers meet in one output, and how many one input goes to.

    The underscore is PyTorch's: layers in many programs call it when they draw their biases.
    Raises:
        ValueError: for fewer than two dimensions.
    """
    shape = tensor.array.shape
    if len(shape) < 2:
        raise ValueError("fan in and fan out need a tensor with 2 or more dimensions")
    return math.prod(shape[1:]), shape[0] * math.prod(shape[2:])


def uniform_of_std(tensor: Tensor, std: float, generator: Source) -> Tensor:
    """Uniform numbers of a standard deviation: those from [-b, b) have b / sqrt(3)."""
    return uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std, generator)


def normal_of_std(tensor: Tensor, std: float, generator: Source) -> Tensor:
    """Normal numbers of a standard deviation."""
    return normal_(tensor, 0.0, std, generator)


def xavier(draw: Callable) -> Callable[..., Tensor]:
    """The function that draws with variance 2 / (fan_in + fan_out)."""

    def fill(tensor: Tensor, gain: float = 1.0, generator: Source = None) -> Tensor:
        """Variance gain^2 * 2 / (fan_in + fan_out): a compromise between the forward and the
        backward pass (Glorot and Bengio, 2010)."""
        std = gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor)))
        return draw(tensor, std, generator)

    return fill


def kaiming(draw: Callable) -> Callable[..., Tensor]:
    """The function that draws with variance gain^2 / fan."""

    def fill(
        tensor: Tensor,
        a: float = 0,
        mode: str = "fan_in",
        nonlinearity: str = "leaky_relu",
        generator: Source = None,
    ) -> Tensor:
        """Variance gain^2 / fan: with `nonlinearity` (a is its slope) behind each layer the signal
        keeps its size going forward, or with mode="fan_out" the gradient going backward (He et
        al., 2015)."""
        if mode.lower() not in ("fan_in", "fan_out"):
            raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
        fan = _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]
        return draw(tensor, calculate_gain(nonlinearity, a) / math.sqrt(fan or 1), generator)

    return fill


xavier_uniform_ = xavier(uniform_of_std)


xavier_normal_ = xavier(normal_of_std)


kaiming_uniform_ = kaiming(uniform_of_std)


kaiming_normal_ = kaiming(normal_of_std)


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)

    def through(start):
        """The factors of the signal and of the gradient in one layer from 400 to 25."""
        layer, x = Linear(400, 25, bias=False), randn(1000, 400, requires_grad=True)
        start(layer.weight)
        y = layer(x)
        y.backward(randn(1000, 25))
        return f"signal {y.std().item():.1f}, gradient {x.grad.std().item():.2f}"

    print("fan_in: ", through(lambda w: kaiming_normal_(w, nonlinearity="linear")))
    # -> fan_in:  signal 1.0, gradient 0.25
    print("fan_out:", through(lambda w: kaiming_normal_(w, mode="fan_out", nonlinearity="linear")))
    # -> fan_out: signal 4.0, gradient 0.98
    print("xavier: ", through(xavier_normal_))  # -> xavier:  signal 1.4, gradient 0.34

    depths = (1, 10, 20, 30)

    def depth_test(start, activation):
        """The size of the signal after so many layers, and that of the gradient at the input."""
        manual_seed(0)
        layers = [Linear(100, 100, bias=False) for _ in range(30)]
        for layer in layers:
            start(layer.weight)
        net = Sequential(*(part for layer in layers for part in (layer, activation())))
        x = randn(200, 100, requires_grad=True)
        net(x).backward(randn(200, 100))  # a gradient of size 1 starts its way back
        with no_grad():
            signal = [net[: 2 * depth](x).std().item() for depth in depths]
        return signal, x.grad.std().item()

    def show(name, start, activation):
        signal, gradient = depth_test(start, activation)
        print(f"{name:17}", *(f"{size:8.1e}" for size in (*signal, gradient)))
        return signal[-1], gradient

    print("layers           ", *(f"{depth:8}" for depth in depths), " gradient")
    # -> layers                   1       10       20       30  gradient

    kept = show("xavier_normal_", lambda w: xavier_normal_(w, calculate_gain("tanh")), Tanh)
    # -> xavier_normal_     7.5e-01  6.5e-01  6.5e-01  6.5e-01  1.3e+01
    print("kept:", 0.1 < kept[0] < 1)  # -> kept: True

    # The same variance, drawn either way.
    w = Tensor(300, 200)
    for fill, std in (
        (xavier_uniform_, math.sqrt(2 / 500)),
        (xavier_normal_, math.sqrt(2 / 500)),
        (kaiming_uniform_, math.sqrt(2 / 200)),
        (kaiming_normal_, math.sqrt(2 / 200)),
    ):
        fill(w)
        print(f"{w.std().item() / std:.2f}, largest {w.abs().max().item() / std:.1f}")  # -> ...
    try:
        kaiming_uniform_(w, mode="fan")
    except ValueError as error:
        print(error)
    # -> Mode fan not supported, please use one of ['fan_in', 'fan_out']
    kaiming_uniform_(w, a=math.sqrt(5))
    print(f"Linear's: {w.abs().max().item() * math.sqrt(200):.2f}")  # -> Linear's: 1.00
