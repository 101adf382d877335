"""Step init02: Kaiming initialisation: gains, fan_in and fan_out

Step 44 used kaiming_normal_ for relu, which halves the mean of the squares: twice the variance.
Other activations have other gains:

    v = gain^2 / fan_in        gain = sqrt(2) for relu, 5/3 for tanh, 3/4 for selu, 1 for none

calculate_gain returns these numbers; for leaky_relu with slope s it is sqrt(2 / (1 + s^2)).

In backward the roles change: each input goes to fan_out outputs, so its gradient is a sum of
fan_out terms. mode="fan_out" preserves the gradient instead of the signal; in a layer with as many
inputs as outputs both are preserved.

fan_in is the number of terms in one output: for a convolution [out, in, 3, 3] it is 9 times in.
(The underscore of _calculate_fan_in_and_fan_out is PyTorch's; programs call this function.)

The trap: the layers of step layers01 start with smaller weights, as PyTorch's do for compatibility.
With relu their signal fades with depth. That matters in deep networks only, and those have
normalisation layers, which come in a later stage.

New: calculate_gain, _calculate_fan_in_and_fan_out, kaiming_normal_.
Try: kaiming_normal_ with nonlinearity="linear". After how many layers is a millionth left?
"""

import importlib
import math

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


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Source = None,
) -> Tensor:
    """Variance gain^2 / fan: with `nonlinearity` (a is its slope) behind each layer the signal
    keeps its size going forward, or with mode="fan_out" the gradient going backward (He et al.,
    2015)."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(fan or 1), generator)


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

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

    plain = show("1/n", lambda w: normal_(w, 0.0, math.sqrt(1 / 100)), ReLU)
    # -> 1/n                5.8e-01  4.0e-02  8.9e-04  2.4e-05  2.6e-05
    linear = show("as Linear starts", lambda w: w, ReLU)
    # -> as Linear starts   3.4e-01  7.6e-05  7.4e-09  1.1e-12  2.1e-12
    kept = show("kaiming_normal_", lambda w: kaiming_normal_(w, nonlinearity="relu"), ReLU)
    # -> kaiming_normal_    8.2e-01  1.3e+00  9.2e-01  7.9e-01  8.4e-01
    back = show("fan_out", lambda w: kaiming_normal_(w, mode="fan_out", nonlinearity="relu"), ReLU)
    # -> fan_out            8.2e-01  1.3e+00  9.2e-01  7.9e-01  8.4e-01
    print("vanished:", plain[0] < 1e-3, linear[0] < 1e-7, "kept:", 0.05 < kept[0] < 20)
    # -> vanished: True True kept: True

    x = randn(100_000)
    print(f"relu leaves {x.relu().square().mean().item():.2f} of the square")
    # -> relu leaves 0.50 of the square
    print(
        _calculate_fan_in_and_fan_out(Tensor(8, 4, 3, 3)),
        f"{calculate_gain('leaky_relu', 1.0):.1f}",
    )
    # -> (36, 72) 1.0
    w = kaiming_normal_(Tensor(300, 200), nonlinearity="relu")
    print(f"{w.std().item() / math.sqrt(2 / 200):.2f}")  # -> 1.00
    for mistake in (
        lambda: calculate_gain("bend"),
        lambda: kaiming_normal_(Tensor(3)),
        lambda: kaiming_normal_(Tensor(3, 3), mode="fan"),
    ):
        try:
            mistake()
        except ValueError as error:
            print(error)
    # -> Unsupported nonlinearity bend
    # -> fan in and fan out need a tensor with 2 or more dimensions
    # -> Mode fan not supported, please use one of ['fan_in', 'fan_out']
