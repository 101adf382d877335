"""Step 75g: The numbers a network starts with

Send a signal through 30 layers. Each multiplies its standard deviation by some factor, and after
30 layers it is that factor to the power of 30: with 0.7, one part in 40,000 is left; with 1.4, it
is 24,000 times as large. On the way back the same happens to the gradient. These are the vanishing
and exploding gradients that for a long time kept deep networks from being trained. To shorten a
gradient (clipping, step 76g) helps against a single bad step, but not here.

A sum of n terms (n is called fan_in) with weights of variance v has n v times the variance of one
term. So v = 1 / n keeps the signal as it is, and relu, which lets only half pass, needs v = 2 / n:

    kaiming      gain^2 / fan_in                  keeps the signal ("fan_out": the gradient)
    xavier       gain^2 * 2 / (fan_in + fan_out)  a compromise between the two, for tanh
    orthogonal   a rotation                       keeps every length, at any depth

The gain makes up for what the activation takes away. (The layers of step 72g start smaller: with
relu, the signal fades with depth. PyTorch keeps that for the sake of old programs. It matters only
in deep networks, and these have normalisation layers, which come in a later stage.) The paper on
kaiming also introduced PReLU: the slope below 0, which is 0 in relu, is one more number to learn.

Finally, an autoencoder: 64 pixels through 8 numbers and back. What comes out should be what went
in, so it needs no labels. A sigmoid at the end gives pixels between 0 and 1. There is none on the 8
numbers in the middle, where it would only squeeze what little there is.

New: tinytorch/nn/init.py; prelu, PReLU. Moved: the losses to tinytorch/nn/loss.py.
tinytorch/nn/functional.py now collects all the functions in one place.
Try: --draw shows the digits and what the autoencoder makes of them. Or put a Sigmoid behind the
encoder, and compare the errors.
"""

import importlib
import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import full
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
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Source = None,
) -> Tensor:
    """Normal numbers between a and b. What falls outside is drawn again."""
    tensor.normal_(mean, std, generator=generator)
    while bool((outside := (tensor < a) | (tensor > b)).any()):
        again = tensor.clone().normal_(mean, std, generator=generator)
        tensor.copy_(again.where(outside, tensor))
    return tensor


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


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix: as much as possible of the input goes through. It must be 2D."""
    if tensor.array.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(wrap(tensor.device.xp.eye(*tensor.array.shape), tensor.device))


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


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Source = None) -> Tensor:
    """A matrix that turns and does not stretch: rows, or columns, orthogonal (Saxe, 2013).

    Raises:
        ValueError: for fewer than two dimensions.
    """
    shape = tensor.array.shape
    if len(shape) < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.array.size == 0:
        return tensor
    xp, matrix = tensor.device.xp, tensor.clone().normal_(generator=generator)
    matrix = matrix.float().reshape(shape[0], -1)
    wide = matrix.array.shape[0] < matrix.array.shape[1]
    q, r = xp.linalg.qr(matrix.array.T if wide else matrix.array)
    q = q * xp.sign(xp.diagonal(r))  # makes all turns equally probable
    return tensor.copy_(wrap((q.T if wide else q).reshape(shape) * gain, tensor.device))


def deprecated(name: str) -> Callable[..., Tensor]:
    """The function `name` by its first name, without "_": it warns, and does the same."""
    function, old = globals()[name], name[:-1]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return call


uniform, normal, constant = map(deprecated, ("uniform_", "normal_", "constant_"))
xavier_uniform, xavier_normal = map(deprecated, ("xavier_uniform_", "xavier_normal_"))
kaiming_uniform, kaiming_normal = map(deprecated, ("kaiming_uniform_", "kaiming_normal_"))
orthogonal = deprecated("orthogonal_")


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with slopes that are learned: one, or one for each channel (dimension 1).

    Raises:
        RuntimeError: for another number of slopes.
    """
    shape, n = input.array.shape, weight.numel()
    if weight.array.ndim > 1 or n not in (1, shape[1] if shape[1:] else 1):
        raise RuntimeError(f"prelu: weight {weight.shape} does not fit an input of {input.shape}")
    weight = weight.reshape([] if n == 1 else [n, *[1] * (len(shape) - 2)])
    return where(input > 0, input, weight * input)


class PReLU(Module):
    """prelu as a module, with `num_parameters` slopes that start at `init`."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


if __name__ == "__main__":
    import argparse

    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.activation import ReLU, Sigmoid
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.joining import cat
    from tinytorch.ops.random import manual_seed, randn, randperm

    flags = argparse.ArgumentParser()
    flags.add_argument("--draw", action="store_true", help="draw what the autoencoder makes")
    draw = flags.parse_args().draw

    # A signal of size 1 through 30 layers of 100 units, and its gradient back to the first one.
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
        return signal[-1], x.grad.std().item(), signal

    starts = {
        "too small, 0.5/n": lambda w: normal_(w, 0.0, math.sqrt(0.5 / 100)),
        "as Linear starts": lambda w: w,
        "xavier_normal_": xavier_normal_,
        "kaiming_normal_": lambda w: kaiming_normal_(w, nonlinearity="relu"),
        "orthogonal_, gain": lambda w: orthogonal_(w, calculate_gain("relu")),
        "too large, 6/n": lambda w: normal_(w, 0.0, math.sqrt(6 / 100)),
    }
    sizes = {}
    print("layers with relu  ", *(f"{depth:8}" for depth in depths), " gradient")
    # -> layers with relu          1       10       20       30  gradient
    for name, start in starts.items():
        sizes[name] = depth_test(start, ReLU)
        numbers = (*sizes[name][2], sizes[name][1])
        print(f"{name:18}", *(f"{size:8.1e}" for size in numbers))  # -> ...
    print("vanished:", sizes["too small, 0.5/n"][0] < 1e-7, sizes["as Linear starts"][0] < 1e-7)
    # -> vanished: True True
    print("exploded:", sizes["too large, 6/n"][0] > 1e5)  # -> exploded: True
    print("kept by kaiming:", 0.05 < sizes["kaiming_normal_"][0] < 20)  # -> kept by kaiming: True

    # The standard deviations are as promised.
    w = Tensor(300, 200)
    xavier_std, kaiming_std = math.sqrt(2 / (200 + 300)), math.sqrt(2 / 200)
    print(f"{xavier_uniform_(w).std().item() / xavier_std:.1f}")  # -> 1.0
    print(f"{kaiming_uniform_(w).std().item() / kaiming_std:.1f}")  # -> 1.0
    turned = orthogonal_(Tensor(3, 3))
    print("a rotation:", ((turned @ turned.T - eye_(Tensor(3, 3))).abs().sum().item() < 1e-5))
    # -> a rotation: True

    print("none beyond 2:", trunc_normal_(Tensor(1000)).abs().max().item() <= 2)
    # -> none beyond 2: True

    # A slope that is learned: |x| is x above 0 and -x below, so it has to become -1.
    x, bend = linspace(-1, 1, 21), PReLU()
    for _ in range(100):
        bend.zero_grad()
        mse_loss(bend(x), x.abs()).backward()
        with no_grad():
            bend.weight -= bend.weight.grad
    print(bend, f"starts with 0.25 and learns {bend.weight.item():.2f}")
    # -> PReLU(num_parameters=1) starts with 0.25 and learns -1.00

    # The autoencoder: 64 -> 32 -> 8 -> 32 -> 64.
    images = load_digits()[0].reshape(-1, 64)
    nothing = (images - images.mean(0)).square().mean().item()

    def autoencoder(*code_end):
        """A trained autoencoder, with `code_end` behind its 8 numbers, and its error."""
        manual_seed(0)
        encoder = Sequential(Linear(64, 32), ReLU(), Linear(32, 8), *code_end)
        decoder = Sequential(Linear(8, 32), ReLU(), Linear(32, 64), Sigmoid())
        model = Sequential(encoder, decoder)
        velocities = [Tensor(*param.shape).zero_() for param in model.parameters()]
        for _ in range(30):
            for batch in randperm(1792).reshape(-1, 64):
                model.zero_grad()
                mse_loss(model(images[batch]), images[batch]).backward()
                with no_grad():
                    for param, velocity in zip(model.parameters(), velocities, strict=True):
                        velocity.mul_(0.9).add_(param.grad)  # momentum: step 77g
                        param -= 2.0 * velocity
        return model, mse_loss(model(images), images).item()

    # The functions had no "_" in PyTorch's first years. Those names still work, and say so.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kaiming_normal(Tensor(3, 4))
    print(caught[0].message)
    # -> `nn.init.kaiming_normal` is now deprecated in favor of `nn.init.kaiming_normal_`.

    model, loss = autoencoder()
    print(sum(param.numel() for param in model.parameters()), "numbers to learn")
    # -> 4744 numbers to learn
    print(f"error of the mean image {nothing:.4f}, of the autoencoder {loss:.4f}")  # -> ...
    print("a third of it or less:", loss < nothing / 3)  # -> a third of it or less: True
    # A known fault: a sigmoid on the code. Its slope is 1/4 at most, so the encoder learns slowly.
    squeezed = autoencoder(Sigmoid())[1]
    print("with a sigmoid on the code, worse:", squeezed > 1.2 * loss)
    # -> with a sigmoid on the code, worse: True
    if draw:
        plt = importlib.import_module("matplotlib.pyplot")
        shown = cat([images[:10], model(images[:10])])
        figure, places = plt.subplots(2, 10, figsize=(10, 2.4))
        for place, picture in zip(places.flat, shown.tolist(), strict=True):
            rows = [picture[start : start + 8] for start in range(0, 64, 8)]
            place.imshow(rows, cmap="gray_r", vmin=0, vmax=1)
            place.axis("off")
        plt.show()
