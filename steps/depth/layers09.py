"""Step layers09: Dropout in the package's dress

Step 48a built dropout: zeros in training, the rest times 1 / (1 - p), nothing in evaluation. Here
the mask is drawn in the type and on the device of x. The demo trains a network with 300 parameters
on 20 noisy points, with and without it.

The trap: without eval() the trained network returns random outputs. (PyTorch: F.dropout has the
argument training=True; the module passes its own `training`, step module16.)

New: dropout, Dropout. Moved: Linear and the other layers, to tinytorch/nn/modules/linear.py.
Try: leave out `.mul_(1 / (1 - p))`, and see what becomes of the mean.
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, rand, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Each element is 0 with probability p. The others are multiplied by 1 / (1 - p), so that the
    expected value stays the same, and nothing has to be done when the network is used."""
    if not training:
        return input
    mask = (rand(input.array.shape, device=input.device) >= p).to(input.dtype)
    return input * mask.mul_(1 / (1 - p))


class Dropout(Module):
    """dropout, in training only: eval() switches it off."""

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    drop, many = Dropout(0.25), ones(100, 1000)
    y = drop(many)
    kept, largest, mean = (y > 0).float().mean().item(), y.max().item(), y.mean().item()
    print(f"{kept:.2f} of all are kept, each is {largest:.4f}, the mean {mean:.2f}")
    # -> 0.75 of all are kept, each is 1.3333, the mean 1.00
    print("in use nothing changes:", drop.eval()(many) is many)  # -> in use nothing changes: True
    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = dropout(x)
    y.sum().backward()
    print(y.detach(), x.grad, drop)
    # -> tensor([0., 4., 0., 8.]) tensor([0., 2., 0., 2.]) Dropout(p=0.25)

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    # Twenty noisy points, and two hundred new ones.
    def points(n):
        x = rand(n, 1) * 4 - 2
        return x, (2 * x).sin() + 0.3 * randn(n, 1)

    manual_seed(0)
    (x, target), (new_x, new_target) = points(20), points(200)

    def train(p):
        manual_seed(1)
        net = Sequential(Linear(1, 100), Tanh(), Dropout(p), Linear(100, 1))
        for param in net[0].parameters():
            param.data.mul_(4)  # steep units, that can follow every point
        for _ in range(1000):
            (net(x) - target).square().mean().backward()
            with no_grad():
                for param in net.parameters():
                    param -= 0.02 * param.grad
            net.zero_grad()
        net.eval()
        return [(net(a) - b).square().mean().item() for a, b in ((x, target), (new_x, new_target))]

    old, new = train(0.0)
    print(f"without dropout: error {old:.3f}, on new points {new:.3f}")  # -> ...
    dropped_old, dropped_new = train(0.2)
    print(f"with p = 0.2:    error {dropped_old:.3f}, on new points {dropped_new:.3f}")  # -> ...
    print("learned less by heart:", dropped_old > old, "and better:", dropped_new < new)
    # -> learned less by heart: True and better: True
