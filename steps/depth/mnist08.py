"""Step mnist08: Normalize: mean 0 and size 1

The digits of step mnist07 are between 0 and 1, with mean 0.3. A first layer is made for inputs of
mean 0 and size 1 (step init01): the network still learns more slowly than it could.

    Compose([ToTensor(), Normalize([0.13], [0.31])])     x / 255, then (x - mean) / std

Mean and std are numbers, one for each channel. `column` gives them the shape [channels, 1, 1], so
that broadcasting applies each to its channel. It is cached: the tensor is made once and not for
each image.

The trap: mean and std of the training set belong to the test set, too. The network has learned for
these numbers; its own mean would move each test image to another place. (The numbers above are
those of MNIST, and PyTorch's examples use them.)

New: column, Normalize.
Try: Normalize before ToTensor. What does the error say?
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.device import Device
from tinytorch.core.dtype import DType, uint8
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


@cache
def column(values: tuple[float, ...], dtype: DType, device: Device) -> Tensor:
    """One number for each channel, in the shape [channels, 1, 1]. Made once, and not per image."""
    return tensor(values, dtype=dtype, device=device)[:, None, None]


class Normalize(Transform):
    """(image - mean) / std for each channel. ValueError for a std of 0, TypeError for an image of
    integers."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        if any(value == 0 for value in std):
            raise ValueError(f"std must not be 0, got {std}")
        self.mean, self.std = mean, std

    def __call__(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            raise TypeError(f"an image of floats is to be normalized, not {image.dtype}")
        like = image.dtype, image.device
        return (image - column(tuple(self.mean), *like)) / column(tuple(self.std), *like)


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
    print(Normalize([0.2], [0.1])(image))
    # -> tensor([[[-2.,  0.,  8.],
    # ->          [ 8.,  2., -2.]]])
    both = Compose([ToTensor(), Normalize([0.2], [0.1])])
    print(both(pixels).shape, both.transforms)
    # -> tinytorch.Size([1, 2, 3]) [ToTensor(), Normalize(mean=[0.2], std=[0.1])]

    wrong = (
        lambda: Normalize([0.0], [0.0]),
        lambda: Normalize([0.0], [1.0])(pixels),
    )
    for call in wrong:
        try:
            call()
        except (TypeError, ValueError) as error:
            print(error)
    # -> std must not be 0, got [0.0]
    # -> an image of floats is to be normalized, not tinytorch.uint8

    # The same network on 0 to 1, and on mean 0 and size 1: its error after 100 steps.
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

    scaled = loss_with(ToTensor())
    normalized = loss_with(Compose([ToTensor(), Normalize([0.3], [0.37])]))
    print(f"0 to 1: {scaled:.2f}, mean 0 and size 1: {normalized:.2f}")  # -> ...
    print("normalized is better:", normalized < scaled / 2)  # -> normalized is better: True
    colours = tensor([[[1.0]], [[2.0]], [[3.0]]])
    print(Normalize([1.0, 1.0, 1.0], [1.0, 2.0, 4.0])(colours).flatten().tolist())
    # -> [0.0, 0.5, 0.5]
