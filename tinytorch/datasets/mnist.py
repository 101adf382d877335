"""MNIST and Fashion-MNIST: 70,000 images of 28 by 28 pixels each, read from their IDX files.

Sources: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits, 1998;
H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, 2017, https://arxiv.org/abs/1708.07747.
"""

import gzip
import hashlib
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, from_numpy
from tinytorch.datasets.labelled import Labelled
from tinytorch.serialization.files import replacing

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
        download: fetch the files that are missing. Nothing is fetched unless you ask for it.
    Raises:
        FileNotFoundError: for missing files.
        RuntimeError: where a download fails.
        ValueError: for a file that is damaged, and for other numbers of images and labels.
    """

    mirrors = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ]
    # SHA-256 of the files, unpacked: images and labels to learn from, images and labels to test.
    checksums = [
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ]
    classes = [str(digit) for digit in range(10)]

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Any = None,
        target_transform: Any = None,
        download: bool = False,
    ):
        self.root, part = Path(root), slice(0, 2) if train else slice(2, 4)
        named = zip(NAMES[part], self.checksums[part], strict=True)
        images, labels = (read_idx(self.find(*each, download)) for each in named)
        if images.shape[:1] != labels.shape or images.ndim < 2:
            raise ValueError(f"{root} has images {images.shape} and labels {labels.shape}")
        super().__init__(images, labels.long(), transform, target_transform)

    def find(self, name: str, checksum: str, download: bool) -> Path:
        """Where the file lies, after it was fetched if it has to be."""
        raw = self.root / type(self).__name__ / "raw"
        for path in (folder / f"{name}{end}" for folder in (self.root, raw) for end in ("", ".gz")):
            if path.is_file():
                return path
        if not download:
            raise FileNotFoundError(f"{name} is not in {self.root}; download=True would fetch it")
        raw.mkdir(parents=True, exist_ok=True)
        with replacing(raw / name) as file:
            file.write(self.fetched(name, checksum))
        return raw / name

    def fetched(self, name: str, checksum: str) -> bytes:
        """What is in the file, from the first mirror that has the right one."""
        problems = []
        for mirror in self.mirrors:
            try:
                with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=30) as answer:
                    content = gzip.decompress(answer.read())
            except (OSError, EOFError, zlib.error) as error:  # no network, no such file, not gzip
                problems.append(f"{mirror}: {error}")
                continue
            if hashlib.sha256(content).hexdigest() == checksum:
                return content
            problems.append(f"{mirror}: the checksum is wrong")
        raise RuntimeError(f"could not download {name}: {'; '.join(problems)}")


class FashionMNIST(MNIST):
    """Pieces of clothing, in the form of MNIST: a harder task for the same program."""

    mirrors = ["https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"]
    checksums = [
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ]
    classes = ["T-shirt/top", *"Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag".split()]
    classes += ["Ankle boot"]
