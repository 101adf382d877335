"""Step init01: Initialisation in the package's dress

Step 44 measured how a signal vanishes or explodes through many layers, and found the variance that
keeps it: 1 / fan_in. This run builds torch.nn.init. It begins with the functions that fill a tensor
in place: normal_, uniform_, constant_, zeros_ and ones_. In place, because the parameter must stay
the same object (step module17); under no_grad, because a leaf that requires a gradient refuses the
write otherwise. normal_ and uniform_ take a generator, for random numbers that do not depend on
others.

The trap: a factor of 0.9 looks harmless in one layer, but 0.9^30 is 0.04. (PyTorch: torch.nn.init.)

Changed: normal_. New: uniform_, constant_, ones_, zeros_. Moved: the losses, to tinytorch/nn.
Try: the factor of variance 0.9 / n, and 300 layers.
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


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Identity, Linear
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

    small = show("too small, 0.5/n", lambda w: normal_(w, 0.0, math.sqrt(0.5 / 100)), Identity)
    # -> too small, 0.5/n   7.0e-01  2.8e-02  9.2e-04  2.9e-05  2.8e-05
    right = show("1/n", lambda w: normal_(w, 0.0, math.sqrt(1 / 100)), Identity)
    # -> 1/n                9.9e-01  8.9e-01  9.4e-01  9.5e-01  9.3e-01
    large = show("too large, 2/n", lambda w: normal_(w, 0.0, math.sqrt(2 / 100)), Identity)
    # -> too large, 2/n     1.4e+00  2.8e+01  9.6e+02  3.1e+04  3.0e+04
    print("vanished:", small[0] < 1e-4, small[1] < 1e-4)  # -> vanished: True True
    print("exploded:", large[0] > 1e4, large[1] > 1e4)  # -> exploded: True True
    print("kept:", 0.5 < right[0] < 2, 0.5 < right[1] < 2)  # -> kept: True True
    print(f"sqrt(0.5) to the power of 30 is 1 / {1 / math.sqrt(0.5) ** 30:.0f}")
    # -> sqrt(0.5) to the power of 30 is 1 / 32768

    weight = Linear(3, 2).weight
    try:
        weight.normal_()
    except RuntimeError as error:
        print(error)
    # -> a leaf Variable that requires grad is being used in an in-place operation.
    print(normal_(weight) is weight, weight.grad_fn, weight.requires_grad)  # -> True None True
    print(constant_(weight, 5.0).tolist(), zeros_(weight).sum().item(), ones_(weight).sum().item())
    # -> [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]] 0.0 6.0
    own = Generator().manual_seed(7)
    first = uniform_(weight, -1, 1, generator=own).tolist()
    print(first == uniform_(weight, -1, 1, generator=own.manual_seed(7)).tolist())  # -> True
