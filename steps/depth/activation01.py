"""Step activation01: Activations as modules

Part I used relu, tanh and sigmoid between layers, and ReLU and Sigmoid as modules (steps 41b and
43). Here the three get their modules in the package's dress, and relu its finished form: the
gradient is multiplied by 1 or 0, so that nan and inf stay nan where the input is below 0. The demo
shows once more what they are for: two linear layers in a row are one, and its error is that of the
best straight line.

The trap: an activation belongs between the layers. After the last layer it limits the outputs: relu
has no negative ones, tanh none above 1. (PyTorch: nn.ReLU, nn.Tanh, nn.Sigmoid.)

New: relu; ReLU, Sigmoid, Tanh.
Try: put a Tanh behind the last layer, and look at the error.
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.elementwise import sigmoid, tanh

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def relu(input: Tensor) -> Tensor:
    """max(input, 0). The gradient is multiplied by 1 or 0, so that nan and inf stay nan where the
    input is below 0. PyTorch chooses instead, which took 8 to 11 % more of a whole training step.
    """
    return input.relu()


class ReLU(Module):
    """relu as a module."""

    def forward(self, input: Tensor) -> Tensor:
        return relu(input)


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
    target = x.square()

    def train(model):
        for _ in range(300):
            loss = (model(x) - target).square().mean()
            model.zero_grad()
            loss.backward()
            with no_grad():
                for param in model.parameters():
                    param -= 0.05 * param.grad
        return loss.item()

    line = Sequential(Linear(1, 20), Linear(20, 1))
    best = (target - target.mean()).square().mean().item()
    print(f"two layers {train(line):.2f}, the best line {best:.2f}")
    # -> two layers 1.57, the best line 1.57
    first, second = line
    product = second.weight @ first.weight
    offset = second.weight @ first.bias + second.bias
    print("one layer does the same:", (x @ product.T + offset - line(x)).abs().max().item() < 1e-5)
    # -> one layer does the same: True

    for bend in (Tanh(), ReLU(), Sigmoid()):
        loss = train(Sequential(Linear(1, 20), bend, Linear(20, 1)))
        print(bend, "is far better:", loss < 0.5)
    # -> Tanh() is far better: True
    # -> ReLU() is far better: True
    # -> Sigmoid() is far better: True
    print(relu(tensor([-1.0, 0.0, 2.0])))  # -> tensor([0., 0., 2.])
