"""Step residual01: A residual block for images

Step 52c built the residual connection, x + f(x), and showed why depth needs it. But a network for
images makes its pictures smaller and its channels more on the way. There x + f(x) fails: x has the
shape [n, 8, 8, 8] and f(x) [n, 16, 4, 4]. So where the shape changes, x goes through the simplest
layer that changes it in the same way, a convolution of 1 x 1 with the same stride: a linear map of
the channels at every second place.

    x --+-- conv 3x3, norm, relu, conv 3x3, norm --(+)-- relu
        +-- nothing, or conv 1x1, norm -------------+

This is the block of ResNet-18 and 34 (He et al., 2015), and PyTorch's torchvision calls it
BasicBlock. The convolutions have no bias: the normalisation after them would subtract it (step
52a). The relu comes after the sum, as in the paper. With few blocks that does no harm.

The trap: eval(). The network has seven BatchNorms now, and without eval() the digits that are
asked for together change each other's answers (step norm13).

New: ResidualBlock and network, which belong to the demos of this run and not to the package.
Try: leave the shortcut out: return self.f(x).relu(). How much is lost with six convolutions?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.batchnorm import BatchNorm2d
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.conv import Conv2d
from tinytorch.nn.modules.flatten import Flatten
from tinytorch.nn.modules.linear import Identity, Linear
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class ResidualBlock(Module):
    """relu(shortcut(x) + f(x)) for images: two convolutions and their normalisations are f. With a
    stride or other channels the shortcut is a convolution of 1 x 1, which changes the shape too."""

    def __init__(self, channels: int, out: int, stride: int = 1):
        super().__init__()
        self.f = Sequential(
            Conv2d(channels, out, 3, stride, padding=1, bias=False), BatchNorm2d(out), ReLU(),
            Conv2d(out, out, 3, padding=1, bias=False), BatchNorm2d(out),
        )  # fmt: skip
        self.shortcut: Module = Identity()
        if stride > 1 or channels != out:
            conv = Conv2d(channels, out, 1, stride, bias=False)
            self.shortcut = Sequential(conv, BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return (self.shortcut(x) + self.f(x)).relu()


def network() -> Sequential:
    """A small residual network for digits: [n, 1, 8, 8] to [n, 10]."""
    return Sequential(
        Conv2d(1, 8, 3, padding=1, bias=False), BatchNorm2d(8), ReLU(),
        ResidualBlock(8, 8), ResidualBlock(8, 16, 2), ResidualBlock(16, 32, 2),
        Flatten(), Linear(128, 10),
    )  # fmt: skip


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed, randint
    from tinytorch.optim.adam import Adam

    images, labels = load_digits()
    images = images.unsqueeze(1)
    manual_seed(0)
    model = network()
    optimizer = Adam(model.parameters(), lr=0.005)
    for _ in range(60):
        rows = randint(0, 1437, (64,))
        loss = cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    print([(name, list(param.shape)) for name, param in model[4].shortcut.named_parameters()])
    # -> [('0.weight', [16, 8, 1, 1]), ('1.weight', [16]), ('1.bias', [16])]
    x = images[:2]
    for layer in model[:6]:
        x = layer(x)
        print(f"{type(layer).__name__:13} {list(x.shape)}")
    # -> Conv2d        [2, 8, 8, 8]
    # -> BatchNorm2d   [2, 8, 8, 8]
    # -> ReLU          [2, 8, 8, 8]
    # -> ResidualBlock [2, 8, 8, 8]
    # -> ResidualBlock [2, 16, 4, 4]
    # -> ResidualBlock [2, 32, 2, 2]

    with no_grad():
        right = (model(images[1437:]).argmax(1) == labels[1437:]).sum().item()
    print("weights:", sum(param.numel() for param in model.parameters()))  # -> weights: 20770
    print(f"of 360 digits by other writers {right} are read")  # -> ...
    print("more than nine in ten:", right > 324)  # -> more than nine in ten: True
