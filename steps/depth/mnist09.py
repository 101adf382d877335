"""Step mnist09: Random transforms in the package's dress

Step 53a moved images by whole pixels, in a data set of its own. RandomCrop does it as a transform:
it puts zeros around an image, and takes a part of the old size from a random place, drawn from
tinytorch's generator. RandomHorizontalFlip mirrors: right for cats, but a mirrored 2 is not a
digit.

    . . . . . .        8 by 8 in a frame of zeros, 10 by 10:
    . a b c d .        one of 9 places, which is to say moved by -1, 0 or 1 in both directions
    . e f g h .

It has a price: in the same few epochs the network reads the digits as they are worse than before,
85 % instead of 90 %. Images that always change take longer to learn.

The trap: a random transform belongs to the training set alone. The test set must be the same each
time, or two networks are compared on two tests.

New: Lambda, RandomHorizontalFlip, RandomCrop.
Try: padding=2 in `moving`.
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
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.random import rand, randint
from tinytorch.ops.slicing import flip

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


class Lambda(Transform):
    """A function of your own. (DataLoader's workers can be sent named functions only.)"""

    def __init__(self, lambd: Callable):
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


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


class RandomHorizontalFlip(Transform):
    """Left and right changed, with probability p. Not for digits: a 2 has only one way round."""

    def __init__(self, p: float = 0.5):
        self.p = p

    def __call__(self, image: Tensor) -> Tensor:
        return flip(image, -1) if rand(1).item() < self.p else image


class RandomCrop(Transform):
    """A part of (height, width) = `size` from a random place, after `padding` zeros around.

    Raises:
        ValueError: where the image is smaller than that.
    """

    def __init__(self, size: int | Sequence[int], padding: int = 0):
        self.size = (size, size) if isinstance(size, int) else tuple(size)
        self.padding = padding

    def __call__(self, image: Tensor) -> Tensor:
        image = constant_pad(image, (self.padding,) * 4) if self.padding else image
        place = []
        for n, length in zip(image.array.shape[-2:], self.size, strict=True):
            if n < length:
                raise ValueError(f"a crop of {self.size} from {tuple(image.array.shape[-2:])}")
            start = randint(n - length + 1, (1,)).item()
            place.append(slice(start, start + length))
        return image[(..., *place)]


if __name__ == "__main__":
    from tinytorch.datasets.labelled import Digits
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.flatten import Flatten
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam
    from tinytorch.utils.data.dataloader import DataLoader

    pixels = tensor([[0, 51, 255], [255, 102, 0]], dtype=uint8)
    manual_seed(0)
    crops = {str(RandomCrop((1, 2))(pixels).tolist()) for _ in range(50)}
    print(sorted(crops))  # -> ['[[0, 51]]', '[[102, 0]]', '[[255, 102]]', '[[51, 255]]']
    print(RandomCrop(2, padding=1)(ToTensor()(pixels)).shape)  # -> tinytorch.Size([1, 2, 2])
    print([RandomHorizontalFlip(p)(pixels).tolist()[0] for p in (0.0, 1.0)])
    # -> [[0, 51, 255], [255, 51, 0]]
    twice = Compose([ToTensor(), Lambda(lambda image: image * 2)])
    print(round(twice(pixels)[0, 0, 1].item(), 1))  # -> 0.4
    try:
        RandomCrop(8)(pixels)
    except ValueError as error:
        print(error)  # -> a crop of (8, 8) from (2, 3)

    # Trained with and without it, tested on the last 360 digits, and on the same moved by a pixel.
    scale = [ToTensor(), Normalize([0.3], [0.37])]
    moving = Compose([RandomCrop(8, padding=1), *scale])
    move = Lambda(lambda image: constant_pad(image, (1, -1)))
    tests = [Digits(False, Compose(parts)) for parts in (scale, [move, *scale])]
    tests = [next(iter(DataLoader(test, 360))) for test in tests]

    def right(transform, epochs=3):
        manual_seed(0)
        net = Sequential(Flatten(), Linear(64, 128), ReLU(), Linear(128, 10))
        optimizer = Adam(net.parameters(), lr=5e-3)
        for _ in range(epochs):
            for images, labels in DataLoader(Digits(transform=transform), 64, shuffle=True):
                loss = cross_entropy(net(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        shares = [(net(images).argmax(1) == labels).float().mean() for images, labels in tests]
        return [share.item() for share in shares]

    still, moved = right(Compose(scale))
    print(f"the last 360 digits {still:.1%}, moved by a pixel {moved:.1%}")  # -> ...
    print("a pixel, and a third is lost:", moved < still * 2 / 3)
    # -> a pixel, and a third is lost: True
    still, moved = right(moving)
    print(f"trained on moved digits {still:.1%}, {moved:.1%}")  # -> ...
    print(
        "almost nothing is lost now:", moved > still - 0.15
    )  # -> almost nothing is lost now: True
