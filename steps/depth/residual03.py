"""Step residual03: Saliency: which pixels a network looks at

The network of step residual02 reads digits, and no line of its code says how. What has it learned,
and what does it look at? Its first filters are small enough to be looked at themselves: weights of
[8, 1, 3, 3], eight pictures of 3 x 3. Most are edges: dark on one side and bright on the other.

The weights of later layers tell us little, as they act on what earlier layers have computed. But
which pixels matter is a question that a derivative answers: not the derivative of the loss with
respect to the weights, but of one score with respect to the image,

    d score / d pixel          how much brighter pixel, how much higher score

the "saliency" of Simonyan et al. (2013). One backward pass, and requires_grad on the image.

Whether this is what the network looks at can be tested: paint out the pixels with the largest
derivatives, and compare with as many others at random. The demo does it with 360 digits.

The trap: a derivative speaks of small changes. Where a score is already certain, it may be small
for the very pixels that made it so. Take the score before softmax: after it, the derivative of a
certain answer is almost 0.

New: picture, side_by_side, saliency.
Try: the derivative of softmax(score) instead, for a digit that the network is sure of. `picture`
scales it, so print its length too: saliency(...).norm().
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.activation import ReLU
from tinytorch.nn.container import Sequential
from tinytorch.nn.conv import Conv2d
from tinytorch.nn.linear import Flatten, Identity, Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm_layers import BatchNorm2d

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


def picture(image: Tensor) -> list[str]:
    """An image [h, w] as lines of text: the brighter, the denser the character."""
    low, high = image.min(), image.max()
    shades = ((image - low) / (high - low).clamp(min=1e-8) * 9).round().long().tolist()
    return ["".join(2 * " .:-=+*#%@"[shade] for shade in line) for line in shades]


def side_by_side(*images: Tensor) -> str:
    """Several images as text, one beside the other."""
    lines = zip(*(picture(image) for image in images), strict=True)
    return "\n".join("|" + "|".join(line) + "|" for line in lines)


def saliency(model: Module, image: Tensor, label: int) -> Tensor:
    """How much each pixel of the image [1, h, w] changes the score of a class: the derivative."""
    x = image.unsqueeze(0).detach().requires_grad_()
    model(x)[0, label].backward()
    return x.grad[0]


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.ops.random import manual_seed, rand, randint
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
    model.requires_grad_(False)  # from here on, only images are differentiated

    print("four of the first filters:")
    print(side_by_side(*model[0].weight[:4, 0]))  # -> ...
    print("a digit, and what its score depends on:")
    image, label = images[1500], int(labels[1500])
    print(side_by_side(image[0], saliency(model, image, label)[0].abs()))  # -> ...

    # Paint out the eight pixels that matter most, or eight others of those that are not black.
    test, truth = images[1437:], labels[1437:]
    x = test.clone().requires_grad_()
    model(x).gather(1, truth.unsqueeze(1)).sum().backward()
    weight = (x.grad.abs() * (test > 0)).flatten(1)
    chance = rand(360, 64) * (test > 0).flatten(1)

    def right(order):
        painted = test.flatten(1).scatter(1, order[:, :8], 0.0).reshape(360, 1, 8, 8)
        with no_grad():
            return (model(painted).argmax(1) == truth).float().mean().item()

    most = right(weight.argsort(1, descending=True))
    others = right(chance.argsort(1, descending=True))
    print(f"read without the 8 largest: {most:.2f}, without 8 others: {others:.2f}")  # -> ...
    print("the derivative tells which pixels count:", most < others - 0.05)
    # -> the derivative tells which pixels count: True
