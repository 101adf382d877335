"""Step mnist03: MNIST: four files become a data set

Four files are not yet a data set: images and labels, to learn from and to be tested. A program that
opens them by name breaks on the next machine, where they are compressed, or lie in the folders that
torchvision makes.

    root/train-images-idx3-ubyte        or ...ubyte.gz, or all of them in root/MNIST/raw/

`find` tries these four places and takes the first. The class is a Labelled data set (step
loader16), so transforms, batches and workers come with it. The images stay bytes: 60,000 * 28 * 28
are 47 MB, and as float32 four times as much. A transform makes floats of each image when it is
asked for.

Images and labels are two files, and may not belong together: an interrupted download, a file of the
other half. If their numbers differ, they are refused.

The trap: the labels are bytes too, and a byte ends at 255: label 5 times 100 would be 244. Programs
use labels as indices and compute with them, so they are made long (int64) once, here.

(torchvision.datasets.MNIST has the same arguments, and the same folders. There the images come as
objects of another library, PIL; here an item is a tensor.)

New: NAMES, MNIST.
Try: leave `.long()` out. What is label 5 times 100?
"""

import gzip
import importlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, from_numpy
from tinytorch.datasets.labelled import Labelled

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def read_idx(path: Path) -> Tensor:
    """The tensor in an IDX file, also in a compressed one (.gz).

    Such a file begins with two zeros, a number for the type, and the number of dimensions. Their
    lengths follow, 4 bytes each, the highest first, and then the numbers themselves.

    Raises:
        ValueError: for a file that is damaged, or not an IDX file.
    """
    types = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in types:
                raise ValueError("it is not an IDX file")
            dtype = np.dtype(types[head[2]])
            shape = np.frombuffer(file.read(4 * head[3]), ">u4", head[3]).tolist()
            size = np.prod(shape, dtype=object) * dtype.itemsize
            # gzip makes 1000 bytes of one; images do not come near that. Look before reading.
            if size > 2**20 + 100 * path.stat().st_size:
                raise ValueError(f"it is far too short for the shape {shape}")
            array = np.frombuffer(file.read(size + 1), dtype).reshape(shape)
        return from_numpy(array.astype(dtype.newbyteorder("=")))
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


class MNIST(Labelled):
    """Handwritten digits: images [28, 28], uint8, 60,000 to learn from and 10,000 to be tested.

    Args:
        root: the folder with the files, compressed or not. They may lie in MNIST/raw below it.
    Raises:
        FileNotFoundError: for missing files.
        ValueError: for a file that is damaged, and for other numbers of images and labels.
    """

    classes = [str(digit) for digit in range(10)]

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Any = None,
        target_transform: Any = None,
    ):
        self.root, part = Path(root), slice(0, 2) if train else slice(2, 4)
        images, labels = (read_idx(self.find(name)) for name in NAMES[part])
        if images.shape[:1] != labels.shape or images.ndim < 2:
            raise ValueError(f"{root} has images {images.shape} and labels {labels.shape}")
        super().__init__(images, labels.long(), transform, target_transform)

    def find(self, name: str) -> Path:
        """Where the file lies."""
        raw = self.root / type(self).__name__ / "raw"
        for path in (folder / f"{name}{end}" for folder in (self.root, raw) for end in ("", ".gz")):
            if path.is_file():
                return path
        raise FileNotFoundError(f"{name} is not in {self.root}")


if __name__ == "__main__":
    import tempfile

    def idx(kind, shape, numbers):
        lengths = b"".join(length.to_bytes(4, "big") for length in shape)
        return bytes([0, 0, kind, len(shape)]) + lengths + bytes(numbers)

    with tempfile.TemporaryDirectory() as folder:
        # Two images of 2 by 2 to learn from, one of them compressed in MNIST/raw; one to be tested.
        raw = Path(folder, "MNIST", "raw")
        raw.mkdir(parents=True)
        Path(folder, NAMES[0]).write_bytes(idx(8, (2, 2, 2), range(8)))
        (raw / f"{NAMES[1]}.gz").write_bytes(gzip.compress(idx(8, (2,), [5, 0])))
        train = MNIST(folder, transform=lambda image: image / 255)
        print(len(train), train.data.dtype, train.targets.dtype)
        # -> 2 tinytorch.uint8 tinytorch.int64
        print((train.targets * 100).tolist())  # -> [500, 0]
        image, label = train[1]
        print(image.shape, label, MNIST.classes[label])  # -> tinytorch.Size([2, 2]) 0 0

        try:
            MNIST(folder, train=False)
        except FileNotFoundError as error:
            print(str(error).replace(folder, "FOLDER"))
            # -> t10k-images-idx3-ubyte is not in FOLDER
        Path(folder, NAMES[2]).write_bytes(idx(8, (3, 2, 2), range(12)))
        Path(folder, NAMES[3]).write_bytes(idx(8, (1,), [7]))
        try:
            MNIST(folder, train=False)
        except ValueError as error:
            print(str(error).replace("tinytorch.Size", "").split(" has ")[1])
            # -> images ([3, 2, 2]) and labels ([1])
