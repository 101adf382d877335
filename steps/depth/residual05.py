"""Step residual05: A convolutional network reads digits

The network of step 40a takes an image as 64 numbers in a row. Shuffle the pixels of all images in
the same way, and it learns just as well: it does not know that pixels have neighbours. A stroke
that it has learned in one place it has to learn again in each other place.

A convolution mends both: its filter looks at neighbours, and it is the same at every place. A
network of convolutions has a usual order, and you know each part:

    [1, 8, 8]  -> conv 3x3 -> normalise -> relu -> conv -> normalise -> relu -> largest of 2x2
    [16, 4, 4] -> the same again, with twice the channels
    [32, 2, 2] -> flatten -> dropout -> linear -> [10]

Where the image gets smaller, the channels get more: fewer places, and more features of each. The
convolutions have no bias, since the normalisation after them would subtract it (step norm01).

The demo trains it beside a network of linear layers with as many parameters and the same
normalisation, which gets three times as many passes. The images of the test were written by other
people than those of the training (step 40a held out digits of the same people, and read 97 %). As
they are, the two networks differ by a few percent. Moved by one pixel or two, the digits show what
the convolutions know.

The trap: without model.eval() before the test, the normalisation uses the mean of the test's batch,
and Dropout goes on deleting.

New: block, make_cnn, train, accuracy.
Try: shuffle the pixels with one fixed randperm(64). Which of the two networks gets worse?
(Look at the first number: a shuffled picture cannot be moved.)
"""

import importlib
import time

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
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
from tinytorch.nn.norm_layers import BatchNorm1d, BatchNorm2d
from tinytorch.nn.pooling import MaxPool2d
from tinytorch.ops.random import manual_seed, randperm
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


def train(model: Module, images: Tensor, labels: Tensor, epochs: int, size: int = 50) -> None:
    """Train with AdamW and one cycle of the learning rate."""
    steps = epochs * (len(images) // size)
    optimizer = AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    scheduler = OneCycleLR(optimizer, 5e-3, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for batch in randperm(len(images))[: len(images) // size * size].reshape(-1, size):
            loss = cross_entropy(model(images[batch]), labels[batch], label_smoothing=0.1)
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
    images, digits = load_digits()
    images = images.unsqueeze(1)
    images, labels, test, test_labels = images[:-360], digits[:-360], images[-360:], digits[-360:]
    print(tuple(images.shape), tuple(test.shape))  # -> (1437, 1, 8, 8) (360, 1, 8, 8)

    def count(model):
        return sum(p.numel() for p in model.parameters())

    manual_seed(0)
    cnn = make_cnn(1, 8)
    mlp = Sequential(Flatten(), Linear(64, 146), BatchNorm1d(146), ReLU(), Dropout(0.4))
    mlp.extend([Linear(146, 54), BatchNorm1d(54), ReLU(), Linear(54, 10)])
    print(count(cnn), count(mlp))  # -> 17754 18378

    def moved(by):
        return tensor(np.roll(test.numpy(), by, axis=3))

    right = []
    for name, model, epochs in (("linear layers", mlp, 12), ("convolutions", cnn, 4)):
        began = time.perf_counter()
        train(model, images, labels, epochs)
        seconds = time.perf_counter() - began
        right.append([accuracy(model, moved(by), test_labels) for by in (0, 1, 2)])
        shares = ", ".join(f"{share:.1%}" for share in right[-1])
        print(f"{name}: {shares} as they are, moved by 1, by 2; {seconds:.1f} s")  # -> ...
    print("convolutions read moved digits better:", right[1][1] > right[0][1] + 0.15)
    # -> convolutions read moved digits better: True
