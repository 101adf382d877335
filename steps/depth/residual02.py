"""Step residual02: Activation maximisation: what a neuron responds to

Step 54a asked which pixels of one image matter to a network. The opposite question: which image
makes a neuron respond most? The derivative of its value with respect to the image says which pixels
to make brighter and which darker. Do that, a small step, again and again: gradient descent with the
other sign, and with the image in the place of the weights, which stay as they are.

    image = image + step * d value / d image          (Erhan et al., 2009)

Started from grey, each class draws something of its digit, and much that we would never draw. The
network has learned only what distinguishes the ten, and only for scanned digits. Outside of them
its scores mean nothing, and yet it is more certain of this image than of any real digit: what
maximises a score leaves the data behind. A channel of the first block draws a texture.

It takes little to leave the data. Some small steps turn a real digit into another one for the
network, while we still read the first one (an adversarial example, Szegedy et al., 2013).

The trap: the length of the derivative says little, and differs from neuron to neuron. Each step is
scaled to one size, and the image is kept between 0 and 1, or the largest pixel wins.

New: picture, side_by_side, maximise.
Try: start from an image of another digit, and see how much of it stays.
"""

import importlib
from collections.abc import Callable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
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


def picture(image: Tensor) -> list[str]:
    """An image [h, w] as lines of text: the brighter, the denser the character."""
    low, high = image.min(), image.max()
    shades = ((image - low) / (high - low).clamp(min=1e-8) * 9).round().long().tolist()
    return ["".join(2 * " .:-=+*#%@"[shade] for shade in line) for line in shades]


def side_by_side(*images: Tensor) -> str:
    """Several images as text, one beside the other."""
    lines = zip(*(picture(image) for image in images), strict=True)
    return "\n".join("|" + "|".join(line) + "|" for line in lines)


def maximise(score: Callable, image: Tensor, steps: int = 25, lr: float = 0.12) -> Tensor:
    """The image after steps in which the score grows: gradient ascent, within 0 and 1.

    Args:
        score: a function of images [1, 1, h, w] with one number as its result.
    """
    x = image.detach().clone().requires_grad_()
    for _ in range(steps):
        score(x).backward()
        with no_grad():
            slope = x.grad - x.grad.mean()
            x += lr * slope / slope.square().mean().sqrt().clamp(min=1e-8)
            x.clamp_(0, 1)
        x.grad = None
    return x.detach()[0, 0]


if __name__ == "__main__":
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
    model.requires_grad_(False)
    grey = images[:1] * 0 + 0.3

    def class_score(digit):
        return lambda x: model(x)[0, digit]

    dreams = [maximise(class_score(digit), grey) for digit in (0, 1, 7)]
    print("what the scores of 0, 1 and 7 like best:")
    print(side_by_side(*dreams))  # -> ...
    with no_grad():
        certain = model(dreams[0].reshape(1, 1, 8, 8))[0, 0].item()
        most = model(images)[:, 0].max().item()
    print("more certain of it than of any real 0:", certain > most)
    # -> more certain of it than of any real 0: True

    def channel(number):
        return lambda x: model[:4](x)[0, number].mean()

    print("what three channels of the first block like best:")
    print(side_by_side(*(maximise(channel(number), grey) for number in range(3))))  # -> ...

    # A few steps from a real digit to another answer.
    image, label = images[1500:1501], int(labels[1500])
    other = (label + 5) % 10
    fooled = image

    def rather(x):
        return model(x)[0, other] - model(x)[0, label]

    count = 0
    while count < 50 and label == model(fooled)[0].argmax().item():
        count += 1
        fooled = maximise(rather, fooled, steps=1, lr=0.02).reshape(1, 1, 8, 8)
    print(
        f"a {label} that is read as {model(fooled)[0].argmax().item()} after {count} steps:"
    )  # -> ...
    print(side_by_side(image[0, 0], fooled[0, 0]))  # -> ...
    print(f"mean change of a pixel: {(fooled - image).abs().mean().item():.2f}")  # -> ...
