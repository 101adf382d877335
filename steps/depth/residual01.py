"""Step residual01: Residual connections, and why depth needs them

Step norm01 kept the signal of a deep network alive with normalisation. Is depth then free? The demo
trains networks of blocks, each LayerNorm, Linear, relu, Linear. Four blocks learn the digits.
Thirty-two learn nothing, although they could do all that four do if 28 of them passed their input
on: y = x. But a block of this kind finds the identity hard to learn.

So build the identity in (He et al., 2015). The block computes only what to change:

    y = x + f(x)          dL/dx = g + (the gradient through f)

On the way back g reaches the first block along the sums, unchanged; what the blocks contribute is
added. Without the "x +" the gradient is a product of 32 factors f'. Where they are below 1 it
vanishes. Normalisation keeps the length of the gradient, not its direction: after 32 blocks it has
little to do with the loss. Multiply out (1 + f'_1) ... (1 + f'_32): one term is 1, and it brings g
to the first block unchanged.

The bars show the length of the gradient of each block's weights: a character is a factor of 8.

The trap: x and f(x) need the same shape, and there must be no relu on the path of x: it would set
about half of it to 0, 32 times. (The paper had one there; later ones moved it into f.)

New: Residual, which is not in the package: it is one line in your own network.
Try: x - f(x), and x / 2 + f(x). Which of them can still be trained?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Residual(Module):
    """x + f(x): what the module f computes is a change of its input."""

    def __init__(self, f: Module):
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


if __name__ == "__main__":
    import math

    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.activation import ReLU
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Identity, Linear
    from tinytorch.nn.norm_layers import LayerNorm
    from tinytorch.ops.random import manual_seed, randint
    from tinytorch.optim.sgd import SGD

    images, labels = load_digits()
    images = images.flatten(1)

    def network(depth, residual, normalised=True):
        manual_seed(0)
        blocks = []
        for _ in range(depth):
            first = LayerNorm(64) if normalised else Identity()
            f = Sequential(first, Linear(64, 64), ReLU(), Linear(64, 64))
            blocks.append(Residual(f) if residual else f)
        return Sequential(*blocks, LayerNorm(64), Linear(64, 10))

    def loss_of(model, count=64):
        rows = randint(0, 1437, (count,))
        return cross_entropy(model(images[rows]), labels[rows])

    def bars(title, model):
        """The length of the gradient of every fourth block."""
        print(title)
        loss_of(model, 128).backward()
        for number in range(0, 32, 4):
            squares = [param.grad.square().sum().item() for param in model[number].parameters()]
            length = math.sqrt(sum(squares))
            print(f"  block {number:2} {length:7.0e} {'#' * round(math.log(length * 1e21, 8))}")

    bars("thirty-two blocks, plain", network(32, residual=False, normalised=False))
    # -> ...
    bars("normalised", network(32, residual=False))
    # -> ...
    bars("normalised, with residual connections", network(32, residual=True))
    # -> ...

    def train(model):
        optimizer = SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(40):
            loss = loss_of(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses[-10:]) / 10

    losses = {}
    for depth in (4, 32):
        for kind in ("plain", "residual"):
            loss = losses[depth, kind] = train(network(depth, kind == "residual"))
            print(f"{depth:2} blocks, {kind:8} loss {loss:.2f}")
    # -> ...
    print("thirty-two plain blocks guess:", losses[32, "plain"] > 2.2)
    # -> thirty-two plain blocks guess: True
    print("residual ones have learned:", losses[32, "residual"] < 0.3)
    # -> residual ones have learned: True
