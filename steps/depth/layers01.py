"""Step layers01: Linear in the package's dress

Step 41b built Linear, y = x W^T + b, with a start at random: equal units would stay equal. Here the
weight is empty at first and drawn in `reset_parameters`, so that it can be drawn anew, on any
device, in PyTorch's order:

    [-1/sqrt(n), 1/sqrt(n))    for n inputs

(PyTorch calls kaiming_uniform_(a=sqrt(5)), which draws from the same range. Step init03 explains
it.)

The trap: the values are written in place, and a parameter refuses that while history is recorded.
Hence no_grad.

Changed: Linear. New: Linear.reset_parameters. Moved: Module to nn/modules/module.py, what hooks
need to nn/modules/hooks.py.
Try: let only the biases differ at the start. Is that enough for different units?
"""

import importlib
import math

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Linear(Module):
    """y = x W^T + b, with `weight` [out_features, in_features] and `bias` [out_features]."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features))
        self.bias = Parameter(empty(out_features))
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws weight and bias from [-b, b), b = 1 / sqrt(in_features), as PyTorch does."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for param in (self.weight, self.bias):  # not what a subclass adds
            if param is not None:
                param.uniform_(-bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return input @ self.weight.T + self.bias


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    x, layer = randn(64, 100), Linear(100, 50)
    print(layer(x).shape, layer.weight.shape)
    # -> tinytorch.Size([64, 50]) tinytorch.Size([50, 100])
    print("largest weight below 1/sqrt(100):", 0.099 < layer.weight.abs().max().item() < 0.1)
    # -> largest weight below 1/sqrt(100): True
    print(f"one term {x.std().item():.1f}, a sum of 100 terms {layer(x).std().item():.1f}")
    # -> one term 1.0, a sum of 100 terms 0.6

    # Linear regression: y = 3 x + 2, from points with noise.
    points = randn(200, 1)
    target = 3 * points + 2 + 0.1 * randn(200, 1)
    line = Linear(1, 1)
    for _ in range(200):
        (line(points) - target).square().mean().backward()
        with no_grad():
            for param in line.parameters():
                param -= 0.1 * param.grad
        line.zero_grad()
    print(f"y = {line.weight.item():.1f} x + {line.bias.item():.1f}")  # -> y = 3.0 x + 2.0

    # Units that start alike stay alike.
    def different_units(start):
        """How many of four hidden units differ after training, if all numbers were `start`."""
        hidden, out = Linear(1, 4), Linear(4, 1)
        params = [*hidden.parameters(), *out.parameters()]
        for param in params if start is not None else ():
            param.data.fill_(start)
        for _ in range(50):
            (out(hidden(points).tanh()) - target).square().mean().backward()
            with no_grad():
                for param in params:
                    param -= 0.1 * param.grad
                    param.grad = None
        return len({round(weight, 5) for [weight] in hidden.weight.tolist()})

    print("all zero, all 0.5, as drawn:", *map(different_units, (0.0, 0.5, None)))
    # -> all zero, all 0.5, as drawn: 1 1 4
