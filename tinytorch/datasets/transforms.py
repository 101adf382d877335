"""Transforms: what is done to an image before the network sees it.

Images are tensors [..., height, width]. What is random comes from tinytorch's generator, so that
manual_seed makes it the same again.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tinytorch.core.device import Device
from tinytorch.core.dtype import DType, uint8
from tinytorch.core.tensor import Tensor, from_numpy, tensor
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.random import rand, randint
from tinytorch.ops.slicing import flip


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
