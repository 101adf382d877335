"""Step 88b: Data augmentation: small random changes of each image

After a few passes over 1,437 images the network knows each of them, and its loss on them says
nothing any more. More images would help. We can make some: a digit stays what it is if it is
turned a little, sheared, resized or moved. `warp` does it anew each time that an image is used,
so the network never sees the same image twice. This is called data augmentation, and it is the
cheapest way to a better network.

For each new pixel, ask where in the old image it comes from:

    [y', x'] = (1 + size) * rotation * [y, x] + [0, shear * y] + shift

That place lies between four old pixels, which are mixed by bilinear interpolation (step 85p): the
nearer a pixel, the more it counts. All images of a batch are done at once, by one `gather`
for each of the four corners.

The trap is a change that changes the answer. A 6 that is turned far enough is a 9, and a mirrored
2 is not a digit, but a mirrored cat is a cat. Which changes are harmless depends on the data.

Changed: train. New: warp.
Try: strength = 4.0 in warp. Look at the pictures first, then at the result.
"""

import importlib
import time

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.datasets.digits import load_digits
from tinytorch.nn.activation import ReLU
from tinytorch.nn.class_loss import cross_entropy
from tinytorch.nn.container import Sequential
from tinytorch.nn.conv import Conv2d
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.linear import Flatten, Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm_layers import BatchNorm2d
from tinytorch.nn.padding import pad
from tinytorch.nn.pooling import MaxPool2d
from tinytorch.ops.creation import linspace
from tinytorch.ops.random import manual_seed, rand, randperm
from tinytorch.optim.adam import AdamW
from tinytorch.optim.lr_scheduler.cycle import OneCycleLR

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def block(inputs: int, outputs: int, halve: bool) -> list[Module]:
    """Convolution, normalisation, bend; with `halve` then the largest of each 2 by 2 pixels."""
    layers = [Conv2d(inputs, outputs, 3, padding=1, bias=False), BatchNorm2d(outputs), ReLU()]
    return layers + [MaxPool2d(2)] if halve else layers


def make_cnn(channels: int, size: int, width: int = 16, classes: int = 10) -> Sequential:
    """A network for images [channels, size, size]. Twice two blocks, then one linear layer."""
    layers = block(channels, width, False) + block(width, width, True)
    layers += block(width, 2 * width, False) + block(2 * width, 2 * width, True)
    features = 2 * width * (size // 4) ** 2
    return Sequential(*layers, Flatten(), Dropout(0.4), Linear(features, classes))


def warp(images: Tensor, strength: float = 1.0) -> Tensor:
    """Images [n, channels, height, width], each turned, sheared, resized and moved by random
    amounts. What comes from outside is 0."""
    n, channels, h, w = images.shape
    amounts = strength * tensor([0.25, 0.2, 0.15, 0.15, 0.15]).reshape(5, 1, 1, 1)
    turn, shear, size, up, left = (2 * rand(5, n, 1, 1) - 1) * amounts
    y, x = linspace(-1, 1, h).reshape(1, h, 1), linspace(-1, 1, w).reshape(1, 1, w)
    cos, sin = (1 + size) * turn.cos(), (1 + size) * turn.sin()
    # For each new pixel: the place in the old image where it comes from, between four old pixels.
    ys = (cos * y + sin * x + up + 1) * ((h - 1) / 2)
    xs = (cos * x - sin * y + shear * y + left + 1) * ((w - 1) / 2)
    i, j = ys.floor(), xs.floor()
    below, right = (ys - i).unsqueeze(1), (xs - j).unsqueeze(1)  # how near the pixels i+1, j+1 are
    # A border of 0, one pixel wide, stands for all that is outside.
    flat = pad(images, (1, 1, 1, 1)).flatten(2)

    def at(i: Tensor, j: Tensor) -> Tensor:
        place = (i.clamp(-1, h) + 1) * (w + 2) + j.clamp(-1, w) + 1
        place = place.long().reshape(n, 1, h * w).expand(n, channels, h * w)
        return flat.gather(2, place).reshape(images.shape)

    upper = (1 - right) * at(i, j) + right * at(i, j + 1)
    lower = (1 - right) * at(i + 1, j) + right * at(i + 1, j + 1)
    return (1 - below) * upper + below * lower


def train(model: Module, images: Tensor, labels: Tensor, epochs: int, size: int = 50) -> None:
    """Train with AdamW and one cycle of the learning rate, on images that are always new."""
    steps = epochs * (len(images) // size)
    optimizer = AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    scheduler = OneCycleLR(optimizer, 5e-3, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for batch in randperm(len(images))[: len(images) // size * size].reshape(-1, size):
            loss = cross_entropy(model(warp(images[batch])), labels[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()


@no_grad()
def accuracy(model: Module, images: Tensor, labels: Tensor) -> float:
    """Which part of the images is read correctly."""
    model.eval()
    return (model(images).argmax(1) == labels).float().mean().item()


if __name__ == "__main__":

    def picture(image):
        """Eight lines of text that show an image."""
        return ["".join(2 * " .:-=+*#%@"[int(9.99 * v)] for v in row) for row in image.tolist()]

    images, digits = load_digits()
    images = images.unsqueeze(1)
    images, labels, test, test_labels = images[:-360], digits[:-360], images[-360:], digits[-360:]
    print(tuple(images.shape), tuple(test.shape))  # -> (1437, 1, 8, 8) (360, 1, 8, 8)

    manual_seed(0)
    three = warp(images[[3, 3, 3]])
    rows = [picture(image[0]) for image in (images[3], *three)]
    for lines in zip(*rows, strict=True):
        print(" | ".join(lines))  # -> ...
    unchanged = (warp(images[:50], 0.0) - images[:50]).abs().max().item()
    print("strength 0 changes nothing:", unchanged < 1e-6)  # -> strength 0 changes nothing: True

    model = make_cnn(1, 8)
    began = time.perf_counter()
    train(model, images, labels, epochs=8)
    right = accuracy(model, test, test_labels)
    print(f"{right:.1%} in {time.perf_counter() - began:.1f} s")  # -> ...
    print("above 96 %:", right > 0.96)  # -> above 96 %: True
    # With 24 channels and 30 passes it is about 99 %: python examples/train_cnn.py
