"""CIFAR-10: small photographs, read from their binary files."""

from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.core.tensor import from_numpy
from tinytorch.datasets.labelled import Labelled


class CIFAR10(Labelled):
    """Photographs of ten kinds of things: images [32, 32, 3], bytes, and classes 0 to 9.

    50,000 to learn from, or 10,000 to test. Source: A. Krizhevsky, Learning Multiple Layers of
    Features from Tiny Images, 2009; the "binary version", six files *.bin.

    root: the folder with these files, or the one with their folder cifar-10-batches-bin.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a file does not consist of whole images, or has a class above 9.
    """

    classes = "airplane automobile bird cat deer dog frog horse ship truck".split()

    def __init__(
        self, root: Any, train: bool = True, transform: Any = None, target_transform: Any = None
    ):
        self.root = Path(root)
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
        records = np.concatenate([self.read(name) for name in names])
        # An image is stored as three planes: all red, all green, all blue numbers.
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        images, labels = np.ascontiguousarray(images), records[:, 0].astype(np.int64)
        super().__init__(from_numpy(images), from_numpy(labels), transform, target_transform)

    def read(self, name: str) -> np.ndarray:
        """The images of a file, each a row of its class and 3 * 32 * 32 bytes."""
        for path in (self.root / name, self.root / "cifar-10-batches-bin" / name):
            if path.is_file():
                break
        else:
            raise FileNotFoundError(f"{name} is not in {self.root}")
        content = np.fromfile(path, np.uint8)
        if len(content) == 0 or len(content) % 3073:
            raise ValueError(f"{path} has {len(content)} bytes: not a multiple of 3073")
        records = content.reshape(-1, 3073)
        if records[:, 0].max() > 9:
            raise ValueError(f"{path} has a class {records[:, 0].max()}, above 9")
        return records
