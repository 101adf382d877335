"""Step init04: Orthogonal initialisation

kaiming preserves the size of a signal on average. A single signal may be stretched or shrunk in
each layer, and the factors of 30 layers multiply. The demo sends vectors of length 1 through 30
layers without activations: the resulting lengths differ by a large factor.

A rotation (or a reflection) preserves every length exactly, at any depth. Its rows are orthogonal
and of length 1: Q Q^T = identity. To draw one at random, draw a matrix of normal numbers, which
prefer no direction. The QR decomposition writes it as A = Q R, with R upper triangular; take Q
(Saxe et al., 2013).

The trap is in the signs. QR does not determine them, and the library chooses them by a rule of its
own, so not all rotations are equally probable. Multiplying by the signs of R's diagonal corrects
that.

A matrix that is not square has orthogonal rows or columns, whichever are fewer; a wide one is
transposed first. eye_ is the simplest case: the identity.

New: eye_, orthogonal_.
Try: leave out the line with sign, draw many 1 x 1 matrices, and look at their signs.
"""

import importlib
import math
from collections.abc import Callable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, wrap
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
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)

    def lengths(start):
        """The longest divided by the shortest of 50 vectors of length 1 after 30 layers."""
        layers = [Linear(20, 20, bias=False) for _ in range(30)]
        for layer in layers:
            start(layer.weight)
        x = randn(50, 20)
        with no_grad():
            y = Sequential(*layers)(x / x.square().sum(1, keepdim=True).sqrt())
        sizes = y.square().sum(1).sqrt()
        return sizes.max().item() / sizes.min().item()

    print("kaiming_normal_:", lengths(lambda w: kaiming_normal_(w, nonlinearity="linear")) > 3)
    # -> kaiming_normal_: True
    print(f"orthogonal_:     {lengths(orthogonal_):.4f}")  # -> orthogonal_:     1.0000

    turned = orthogonal_(Tensor(3, 3))
    print("a rotation:", (turned @ turned.T - eye_(Tensor(3, 3))).abs().sum().item() < 1e-5)
    # -> a rotation: True
    for shape in ((2, 5), (5, 2)):
        w = orthogonal_(Tensor(*shape), gain=2.0)
        small = w @ w.T if shape[0] < shape[1] else w.T @ w
        print(shape, (small - 4 * eye_(Tensor(2, 2))).abs().max().item() < 1e-5)
    # -> (2, 5) True
    # -> (5, 2) True
    signs = sum(orthogonal_(Tensor(1, 1)).item() > 0 for _ in range(100))
    print("both signs:", 25 < signs < 75, orthogonal_(Tensor(0, 2)).shape)
    # -> both signs: True tinytorch.Size([0, 2])
    for mistake in (lambda: eye_(Tensor(2)), lambda: orthogonal_(Tensor(2))):
        try:
            mistake()
        except ValueError as error:
            print(error)
    # -> Only tensors with 2 dimensions are supported
    # -> Only tensors with 2 or more dimensions are supported
