"""Step init06: Deprecated names: xavier_uniform without underscore

In PyTorch's first years the functions of steps init01 to init05 had no underscore at the end:
kaiming_normal, xavier_uniform. Later the underscore became the mark of all operations in place.
Programs from 2017 fail at the old name; the demo begins with such a line.

The old names should work and name the new one. Eight functions that warn and then call another one
would be forty similar lines, so deprecated(name) makes them. It finds the function by its name in
the module's globals, and returns a function that warns first.

functools.wraps copies the name, the docstring and the signature of the function, so that help() and
inspect show the real arguments, not *args.

    FutureWarning          for users of a program: shown
    DeprecationWarning     for its authors: hidden unless the code is in __main__

stacklevel=2 makes Python show the line with the old name, not ours.

The trap: a deprecated name may be removed some day. Use the new ones.

New: deprecated, uniform, normal, constant, xavier_uniform, xavier_normal, kaiming_uniform,
kaiming_normal, orthogonal.
Try: leave out @wraps(function), and print help(kaiming_normal).
"""

import importlib
import inspect
import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

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


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    program = "kaiming_normal(Tensor(3, 4))"
    try:
        eval(
            program, {"Tensor": Tensor, "kaiming_normal_": kaiming_normal_}
        )  # the names of step init05
    except NameError as error:
        print(error)
    # -> name 'kaiming_normal' is not defined
    results = []
    for fill in (kaiming_normal, kaiming_normal_):
        manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results.append(fill(Tensor(3, 4)).tolist())
        print([str(each.message) for each in caught])
    # -> ['`nn.init.kaiming_normal` is now deprecated in favor of `nn.init.kaiming_normal_`.']
    # -> []
    print("the same numbers:", results[0] == results[1])  # -> the same numbers: True
    print(orthogonal.__name__, list(inspect.signature(constant).parameters))
    # -> orthogonal_ ['tensor', 'val']
