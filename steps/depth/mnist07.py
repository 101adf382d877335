"""Step mnist07: Transforms: from images to tensors of floats

An image is bytes [height, width, colours]; a network wants floats [colours, height, width]. With
bytes from 0 to 255, the first layer gets inputs a hundred times larger than it was made for (step
init01), and the demo's network learns nothing at the rate that suits it.

Each program could convert its data itself, at once and for good. But then they need four times the
memory, and what is random (step mnist09) would be drawn only once. A data set instead calls a
transform for each item when it is asked for, and Compose makes one transform of several:

    Compose([ToTensor(), ...])          first x / 255, [colours, height, width]; then the others

A transform is an object with __call__, so that it can be shown: its settings are its attributes,
and one __repr__ does for all. And it can be sent to a worker (step loader18), which a lambda
cannot.

The trap: ToTensor divides only bytes. A float image keeps its numbers, which may be in 0 to 1
already; if they are in 0 to 255, they stay there. (torchvision.transforms has the same names.)

New: Transform, Compose, ToTensor. Moved: MNIST, to tinytorch/datasets/mnist.py.
Try: ToTensor on an image of int64 numbers. What is its type afterwards?
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import uint8
from tinytorch.core.tensor import Tensor, from_numpy, tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Transform:
    """A function with settings, which it shows."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class Compose(Transform):
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable]):
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor(Transform):
    """[height, width] or [height, width, channels], an array or a tensor, to a tensor of floats
    [channels, height, width]. Bytes, 0 to 255, become 0 to 1; other types keep their numbers.

    Raises:
        ValueError: for another number of dimensions.
    """

    def __call__(self, image: Any) -> Tensor:
        image = from_numpy(image) if isinstance(image, np.ndarray) else image
        if image.array.ndim not in (2, 3):
            raise ValueError(f"an image has 2 or 3 dimensions, not {image.array.ndim}")
        image = image.unsqueeze(0) if image.array.ndim == 2 else image.permute(2, 0, 1)
        return image / 255 if image.dtype is uint8 else image


if __name__ == "__main__":
    from tinytorch.datasets.labelled import Digits
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.flatten import Flatten
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.sgd import SGD
    from tinytorch.utils.data.dataloader import DataLoader

    importlib.import_module("tinytorch.core.printing")
    pixels = tensor([[0, 51, 255], [255, 102, 0]], dtype=uint8)
    image = ToTensor()(pixels)
    print(image.shape, image.dtype)  # -> tinytorch.Size([1, 2, 3]) tinytorch.float32
    print(ToTensor()(np.zeros((4, 5, 3), np.uint8)).shape)  # -> tinytorch.Size([3, 4, 5])
    print(ToTensor()(image[0]).max().item())  # -> 1.0
    negative = Compose([ToTensor(), lambda image: 1 - image])
    print([round(x, 1) for x in negative(pixels).flatten().tolist()])
    # -> [1.0, 0.8, 0.0, 0.0, 0.6, 1.0]
    print(Compose([ToTensor()]))  # -> Compose(transforms=[ToTensor()])
    try:
        ToTensor()(tensor([1, 2]))
    except ValueError as error:
        print(error)  # -> an image has 2 or 3 dimensions, not 1

    # The same network on bytes, and on 0 to 1: its error after 100 steps.
    def loss_with(transform):
        manual_seed(0)
        digits = Digits()
        digits.data = (digits.data * 255).to(uint8)
        digits.transform = transform
        net = Sequential(Flatten(), Linear(64, 32), ReLU(), Linear(32, 10))
        images, labels = next(iter(DataLoader(digits, 500)))
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            loss = cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
        return loss.item()

    losses = [loss_with(lambda image: image.float().unsqueeze(0)), loss_with(ToTensor())]
    print([round(loss, 2) for loss in losses])  # -> ...
    print("bytes are worse:", not losses[0] <= losses[1])  # -> bytes are worse: True
