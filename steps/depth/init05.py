"""Step init05: trunc_normal_: normal numbers without outliers

Of a million normal numbers some are five times as large as the standard deviation. In a large
network there are such weights in every layer, and a single one can dominate its unit. Vision
Transformers therefore draw from the normal distribution cut off at two standard deviations.

    trunc_normal_(w, mean, std, a, b)        normal, but only between a and b

Numbers outside the limits are drawn again until none is left. With limits at two standard
deviations 4.6 % are drawn a second time, 0.2 % a third time: about five rounds for a million.
Clamping would be simpler but wrong: it piles the outliers up at the limits, as the demo shows.

`again` fills a whole tensor, although only a few numbers are used. That is simple, and happens only
once for each tensor.

The trap: a and b are values, not multiples of std. trunc_normal_(w, std=0.02) cuts off at -2 and 2,
a hundred standard deviations away: that is, not at all. Many programs write it like this.
(PyTorch draws other numbers: it inverts the distribution function.)

New: trunc_normal_.
Try: trunc_normal_ with a=5, b=6. Be patient, or compute how long it takes.
"""

import importlib
import math
from collections.abc import Callable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, wrap
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


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)
    w = normal_(Tensor(1_000_000))
    beyond = (w.abs() > 2).float().mean().item()
    print(f"the largest {w.abs().max().item():.0f}, beyond 2: {beyond:.3f}")
    # -> the largest 5, beyond 2: 0.045
    clamped = w.clamp(-2, 2)
    print(f"clamp: {(clamped == 2).float().mean().item():.3f} of all are exactly 2")
    # -> clamp: 0.023 of all are exactly 2
    cut = trunc_normal_(w)
    print("none beyond 2:", cut.abs().max().item() <= 2, f"std {cut.std().item():.2f}")
    # -> none beyond 2: True std 0.88
    print("the trap:", trunc_normal_(Tensor(100_000), std=0.02).abs().max().item() > 0.06)
    # -> the trap: True
    meant = trunc_normal_(Tensor(100_000), std=0.02, a=-0.04, b=0.04)
    print("meant:   ", meant.abs().max().item() < 0.041)  # -> meant:    True
