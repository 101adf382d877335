"""Step residual04: Photographs: the files of CIFAR-10

Digits are easy. CIFAR-10 has 60,000 photographs, 32 by 32 pixels with three colours, of ten kinds
of things: airplanes, cats, ships and so on. It is the usual second data set, and small enough for
a CPU.

Its files are as simple as files can be. There is no header and there are no names. Each image is
3,073 bytes:

    1 byte       the class, 0 to 9
    1024 bytes   the red numbers of all pixels, row by row
    1024 bytes   the green ones
    1024 bytes   the blue ones

So a file is one array of bytes, reshaped. ToTensor (step mnist07) expects [height, width, colours],
as images usually come, and changes it back to the three planes that `Conv2d` needs.

The trap of a format without a header: np.fromfile reads whatever is there, for example half of a
download. Two things can be checked, and are: the length is a multiple of 3,073, and no class is
above 9. (A shift by one byte would put colours in the place of classes.)

`python examples/train_cnn.py --cifar FOLDER` trains a small residual network on these files.

New: CIFAR10.
Try: write a file without its first byte, and with a 0 at its end. Which of the checks finds it?
"""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import from_numpy
from tinytorch.datasets.labelled import Labelled
from tinytorch.datasets.transforms import ToTensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    # A small stand-in: two images in each file. The first one is of class 3 and all red.
    images = np.zeros((2, 3073), np.uint8)
    images[0, 0], images[0, 1:1025] = 3, 255
    images[1] = 9
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder) / "cifar-10-batches-bin"
        inner.mkdir()
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)]:
            images.tofile(inner / name)

        cats = CIFAR10(folder)
        image, label = cats[0]
        print(len(cats), tuple(image.shape), cats.classes[label])  # -> 10 (32, 32, 3) cat
        print(image[5, 7].tolist(), cats.classes[cats[1][1]])  # -> [255, 0, 0] truck
        planes = CIFAR10(folder, transform=ToTensor())[0][0]
        print(tuple(planes.shape), planes.amax((1, 2)).tolist())  # -> (3, 32, 32) [1.0, 0.0, 0.0]

        try:
            CIFAR10(folder, train=False)
        except FileNotFoundError as error:
            print(str(error).split(" is ")[0])  # -> test_batch.bin
        for spoiled in (images.ravel()[:-1], images.ravel()[1:3074], np.full(3073, 77, np.uint8)):
            spoiled.tofile(inner / "test_batch.bin")
            try:
                CIFAR10(inner, train=False)
            except ValueError as error:
                print(str(error).split("test_batch.bin ")[1])
    # -> has 6145 bytes: not a multiple of 3073
    # -> has a class 255, above 9
    # -> has a class 77, above 9
