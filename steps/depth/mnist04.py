"""Step mnist04: Downloads from mirrors

The files have to come from somewhere, and a user should not have to look for them. But the server
may be gone in ten years, as MNIST's first one is, or send a page that says so.

A download is never a side effect: without download=True nothing is fetched, and the error names the
option. There are several servers with the same files, the mirrors, which are tried one after the
other. If all fail, the error gives the reason for each.

`replacing` (step files11) writes to another name first, and renames the file at the end. So a file
that is there is complete, even if the power fails meanwhile.

The trap: what a mirror sends is believed. The demo's last mirror has other labels, and there is no
error. (PyTorch: torchvision.datasets.MNIST(root, download=True).)

Changed: MNIST. New: MNIST.fetched.
Try: Tiny.mirrors = [changed, right] at the end of the demo. Which labels come, and why?
"""

import gzip
import importlib
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, from_numpy
from tinytorch.datasets.labelled import Labelled
from tinytorch.serialization.files import replacing

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
        images, labels = (read_idx(self.find(name, download)) for name in NAMES[part])
        if images.shape[:1] != labels.shape or images.ndim < 2:
            raise ValueError(f"{root} has images {images.shape} and labels {labels.shape}")
        super().__init__(images, labels.long(), transform, target_transform)

    def find(self, name: str, download: bool) -> Path:
        """Where the file lies, after it was fetched if it has to be."""
        raw = self.root / type(self).__name__ / "raw"
        for path in (folder / f"{name}{end}" for folder in (self.root, raw) for end in ("", ".gz")):
            if path.is_file():
                return path
        if not download:
            raise FileNotFoundError(f"{name} is not in {self.root}; download=True would fetch it")
        raw.mkdir(parents=True, exist_ok=True)
        with replacing(raw / name) as file:
            file.write(self.fetched(name))
        return raw / name

    def fetched(self, name: str) -> bytes:
        """What is in the file, from the first mirror that has it."""
        problems = []
        for mirror in self.mirrors:
            try:
                with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=30) as answer:
                    return gzip.decompress(answer.read())
            except (OSError, EOFError, zlib.error) as error:  # no network, no such file, not gzip
                problems.append(f"{mirror}: {error}")
        raise RuntimeError(f"could not download {name}: {'; '.join(problems)}")


if __name__ == "__main__":
    import tempfile

    def idx(kind, shape, numbers):
        lengths = b"".join(length.to_bytes(4, "big") for length in shape)
        return bytes([0, 0, kind, len(shape)]) + lengths + bytes(numbers)

    with tempfile.TemporaryDirectory() as folder:
        # Mirrors in folders of this machine: one is gone, one is right, one has other labels.
        contents = idx(8, (2, 2, 2), range(8)), idx(8, (2,), [5, 0])
        others = contents[0], idx(8, (2,), [0, 5])
        for mirror, files in (("gone", ()), ("right", contents), ("changed", others)):
            Path(folder, mirror).mkdir()
            for name, content in zip(NAMES, files, strict=False):
                Path(folder, mirror, f"{name}.gz").write_bytes(gzip.compress(content))
        Path(folder, "gone", f"{NAMES[0]}.gz").write_bytes(b"<html>404")
        gone, right, changed = (
            Path(folder, name).as_uri() + "/" for name in ("gone", "right", "changed")
        )

        class Tiny(MNIST):
            mirrors = [gone]

        root = Path(folder, "here")
        try:
            Tiny(root)
        except FileNotFoundError as error:
            print(str(error).split("; ")[1], root.exists())  # -> download=True would fetch it False
        try:
            Tiny(root, download=True)
        except RuntimeError as error:
            print(str(error).replace(Path(folder).as_uri(), "FOLDER"))
        # -> could not download train-images-idx3-ubyte: FOLDER/gone/: Not a gzipped file (b'<h')
        print(list(root.rglob("*ubyte*")))  # -> []

        Tiny.mirrors = [gone, right]
        print(len(Tiny(root, download=True)))  # -> 2
        print(sorted(path.name for path in root.rglob("*ubyte*")))
        # -> ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte']
        Tiny.mirrors = []
        print("label", Tiny(root)[0][1])  # -> label 5

        # A mirror is believed, whatever it has.
        Tiny.mirrors = [changed]
        print("label", Tiny(Path(folder, "there"), download=True)[0][1])  # -> label 0
