"""Datasets of inputs with a class each: digits that are part of the package, and a spiral."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, as_tensor, from_numpy
from tinytorch.datasets.digits import load_digits
from tinytorch.utils.data.collate import default_collate
from tinytorch.utils.data.dataset import Dataset, items


class Labelled(Dataset):
    """Item i is (data[i], targets[i]), each through its transform if it has one."""

    def __init__(
        self, data: Tensor, targets: Tensor, transform: Any = None, target_transform: Any = None
    ):
        self.data, self.targets = data, targets
        self.transform, self.target_transform = transform, target_transform

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        item, target = self.data[index], int(self.targets[index])
        if self.transform is not None:
            item = self.transform(item)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return item, target

    def __getbatch__(self, indices: Sequence[int]) -> Any:
        if self.transform is None and self.target_transform is None:
            chosen = as_tensor(np.array(indices, np.int64))
            return [self.data[chosen], self.targets[chosen]]
        return default_collate(items(self, indices))

    def __len__(self) -> int:
        return len(self.targets)


class Digits(Labelled):
    """The package's digits: images [8, 8], float32 from 0 to 1. The last 360 are the test set."""

    def __init__(self, train: bool = True, transform: Any = None, target_transform: Any = None):
        part = slice(None, -360) if train else slice(-360, None)
        images, labels = load_digits()
        super().__init__(images[part], labels[part], transform, target_transform)


class Spiral(Labelled):
    """Points [2], float32, on arms that wind around each other: no straight line parts them.

    There are `classes` arms with `per_class` points each, which lie beside their arm by a normal
    number of size 0.02. The test set (train=False) has the same arms and other numbers.
    """

    def __init__(self, train: bool = True, classes: int = 3, per_class: int = 100, **more: Any):
        labels = np.repeat(np.arange(classes), per_class)
        radius = np.tile(np.linspace(0.05, 1, per_class), classes)
        angle = 2 * math.pi * (labels / classes + 0.75 * radius)
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        points += 0.02 * np.random.default_rng(int(train)).standard_normal(points.shape)
        super().__init__(from_numpy(points.astype(np.float32)), from_numpy(labels), **more)
