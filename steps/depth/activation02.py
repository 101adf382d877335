"""Step activation02: leaky_relu: no dead units

Start the network of step activation01 with biases of -2.5. For all inputs between -2 and 2 the sums
are negative, relu returns 0, and its slope is 0 as well: no gradient passes, no weight changes, and
the units stay at 0. In the demo, which learns y = exp(x), such a network does not improve beyond a
constant. Dead units also appear in training, after a step that was too large.

A small slope below 0 is enough to bring them back:

    leaky_relu(x) = x where x > 0, s x elsewhere         s = 0.01, say
    dy/dx = 1, or s

The Function computes both for whole arrays: max(x, 0) + s min(x, 0), and for the slope
s + (1 - s) [x > 0], where [x > 0] is 1 or 0.

The trap: at 0 the curve has a corner, and no derivative. PyTorch uses s there, and 0 for relu; we
do the same. In training x is seldom exactly 0; but gradcheck, which compares with differences to
both sides, fails there.

`saves = (0,)` declares that argument 0, x, is what is kept (step node02).

New: LeakyRelu, leaky_relu, LeakyReLU.
Try: a slope of 0.5, and one of 1. What can the network learn then?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.elementwise import sigmoid, tanh

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class LeakyRelu(Function):
    """y = x where x > 0, s x elsewhere;   dy/dx = 1, or s."""

    saves = (0,)

    def forward(ctx, x: Any, s: float) -> Any:
        ctx.s = s
        ctx.save_for_backward(x)
        return ctx.xp.maximum(x, 0) + s * ctx.xp.minimum(x, 0)

    def backward(ctx, g: Any) -> Any:
        (x,) = ctx.saved
        return g * ctx.s + g * (x > 0) * (1 - ctx.s)


@checked
def relu(input: Tensor) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu()


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """input where it is positive, negative_slope * input elsewhere."""
    return LeakyRelu.apply(input, negative_slope)


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
    from tinytorch.autograd.modes import no_grad
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)

    x = linspace(-2, 2, 41).reshape(-1, 1)
    target = x.exp()

    def train(model):
        for _ in range(300):
            loss = (model(x) - target).square().mean()
            model.zero_grad()
            loss.backward()
            with no_grad():
                for param in model.parameters():
                    param -= 0.05 * param.grad
        return loss.item()

    def silent(bend):
        """A network whose units are all below 0 for these x: its loss before and after training."""
        net = Sequential(Linear(1, 20), bend, Linear(20, 1))
        net[0].bias.data.fill_(-2.5)
        (net(x) - target).square().mean().backward()
        print(bend, "has a gradient:", net[0].weight.grad.abs().max().item() > 0, end=", ")
        print("learns:", train(net) < 0.5)

    silent(ReLU())  # -> ReLU() has a gradient: False, learns: False
    silent(LeakyReLU(0.1))  # -> LeakyReLU(negative_slope=0.1) has a gradient: True, learns: True
    x = tensor([-2.0, 0.0, 2.0], requires_grad=True)
    y = leaky_relu(x)
    y.sum().backward()
    print(y.detach(), x.grad)
    # -> tensor([-0.0200,  0.0000,  2.0000]) tensor([0.0100, 0.0100, 1.0000])
