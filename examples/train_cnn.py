"""A convolutional network reads images: python examples/train_cnn.py

Without options it reads the digits of the package, and after some seconds 99 % of those that it has
not seen. --mnist FOLDER and --fashion FOLDER take the IDX files of MNIST and Fashion-MNIST, --cifar
FOLDER the binary files of CIFAR-10, with a small residual network and a longer training. Steps
conv01 to residual04 build and explain each part.
"""

import argparse
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fastest for small products; before NumPy loads

import tinytorch
from tinytorch import nn
from tinytorch.datasets import CIFAR10, MNIST, Digits, FashionMNIST
from tinytorch.nn import functional as F

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(batches, desc="", **_):
        """Without the package: a line that is written again and again, on a terminal only."""
        for i, batch in enumerate(batches):
            if sys.stderr.isatty() and i % 10 == 0:
                print(f"\r{desc} {i / len(batches):4.0%}", end="", file=sys.stderr, flush=True)
            yield batch
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Residual(nn.Module):
    """Two convolutions, added to what was there."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:  # what was there has another shape
            shorter = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shorter, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.norm2(self.conv2(y)))


def resnet(channels, width=16):
    """Three stages of two blocks; each stage halves the image and doubles the channels."""
    layers = [
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    layers += [Residual(width, width), Residual(width, width)]
    layers += [Residual(width, 2 * width, 2), Residual(2 * width, 2 * width)]
    layers += [Residual(2 * width, 4 * width, 2), Residual(4 * width, 4 * width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def block(inputs, outputs, halve):
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
    return [*layers, nn.ReLU(), nn.MaxPool2d(2)] if halve else [*layers, nn.ReLU()]


def cnn(channels, size, width=24):
    """Four convolutions and one linear layer, for small gray images."""
    layers = block(channels, width, False) + block(width, width, True)
    layers += block(width, 2 * width, False) + block(2 * width, 2 * width, True)
    features = 2 * width * (size // 4) ** 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.4), nn.Linear(features, 10))


def warp(images, strength):
    """Each image turned, sheared, resized and moved by random amounts (step residual03)."""
    amounts = strength * tinytorch.tensor([0.25, 0.2, 0.15, 0.15, 0.15]).unsqueeze(1)
    turn, shear, size, up, left = (2 * tinytorch.rand(5, len(images)) - 1) * amounts
    cos, sin = (1 + size) * turn.cos(), (1 + size) * turn.sin()
    theta = tinytorch.stack([cos, shear - sin, left, sin, cos, up], 1).unflatten(1, (2, 3))
    places = F.affine_grid(theta, images.shape, align_corners=False)
    return F.grid_sample(images, places, align_corners=False)


def prepared(dataset, mean=None, std=None):
    """(images [n, channels, height, width] around 0, labels, mean, std)."""
    images = dataset.data.float()
    images = images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2)
    if mean is None:
        mean, std = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    return (images - mean) / std, dataset.targets, mean, std


@tinytorch.no_grad()
def predict(model, images):
    """The class of each image, without the moves and the dropout of training."""
    model.eval()
    return tinytorch.cat([model(x).argmax(1) for x in images.split(500)])


def pictures(images, answers, labels):
    """Gray images side by side as text, each under what the network says and what it is."""
    lines = ["  ".join(f"{a} for {b}".ljust(16) for a, b in zip(answers, labels, strict=True))]
    for rows in zip(*images.tolist(), strict=True):
        shades = ("".join(2 * " .:-=+*#%@"[round(9 * value)] for value in row) for row in rows)
        lines.append("  ".join(shades))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Trains a convolutional network on images.")
    kinds = parser.add_mutually_exclusive_group()
    for name, what in (
        ("mnist", "MNIST's"),
        ("fashion", "Fashion-MNIST's"),
        ("cifar", "CIFAR-10's"),
    ):
        kinds.add_argument(f"--{name}", metavar="FOLDER", help=f"the folder of {what} files")
    parser.add_argument("--epochs", type=int, help="30 for the digits, 3 for MNIST, 10 for others")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    tinytorch.manual_seed(options.seed)
    folder = options.mnist or options.fashion or options.cifar
    kind = MNIST if options.mnist else FashionMNIST if options.fashion else CIFAR10
    epochs = options.epochs or (3 if options.mnist else 10 if folder else 30)
    try:
        parts = [kind(folder, train) if folder else Digits(train) for train in (True, False)]
    except (FileNotFoundError, ValueError) as error:
        if not options.cifar:
            name = kind.__name__
            fetch = f"from tinytorch.datasets import {name}; {name}({folder!r}, download=True)"
            error = f'{error}\nTo download the files: python -c "{fetch}"'
        sys.exit(str(error))
    images, labels, mean, std = prepared(parts[0])
    test_images, test_labels, _, _ = prepared(parts[1], mean, std)
    background = images.amin((0, 2, 3), keepdim=True)  # what warp() takes for the outside is 0

    channels, size = images.shape[1], images.shape[-1]
    model = resnet(channels) if options.cifar else cnn(channels, size)
    batches = len(images) // options.batch_size
    optimizer = tinytorch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.05)
    scheduler = tinytorch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.lr, total_steps=epochs * batches
    )
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(images):,} images")
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        model.train()
        total, order = 0.0, tinytorch.randperm(len(images))
        order = order.split(options.batch_size)[:batches]
        for batch in tqdm(order, desc=f"epoch {epoch}", leave=False):
            x = warp(images[batch] - background, 1.0) + background
            if options.cifar:
                x = x.flip(-1) if tinytorch.rand(1).item() < 0.5 else x
            loss = F.cross_entropy(model(x), labels[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        answers = predict(model, test_images)
        right, seconds = (answers == test_labels).float().mean().item(), time.perf_counter() - start
        left = seconds / epoch * (epochs - epoch)
        print(
            f"epoch {epoch:2}  loss {total / batches:.3f}  test {right:.2%}  "
            f"{seconds:.0f} s, {left:.0f} s left",
            flush=True,
        )
    wrong = (answers != test_labels).nonzero().flatten()
    print(f"{len(wrong)} of {len(test_labels)} images are read wrong")
    if not folder and len(wrong):
        wrong = wrong[:5]
        gray = parts[1].data.float()[wrong]
        print(pictures(gray / gray.max(), answers[wrong].tolist(), test_labels[wrong].tolist()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped; nothing is saved")
