"""Step mnist05: Downloads with checksums

In the demo of step mnist04 a mirror has other labels, and a network would learn from them that a 5
is a
0. A file may also be replaced by an attacker on the way. Neither is an error.

So a file is kept only if it is the right one. SHA-256 makes 32 bytes of a file of any length, and
there is no known way to make another file with the same 32 bytes. Those of the right files stand in
the class.

    fetch, unpack, SHA-256 == checksum?     yes: write it        no: next mirror

The checksum is that of the unpacked file, since a server may have compressed it anew.

The trap: a wrong checksum is not an exception of the download, but a mirror that is not to be used.
The loop notes the reason and goes on with the next one, as for a mirror that does not answer.

Changed: MNIST.
Try: checksums = ["0" * 64] * 2 in the demo.
"""

import gzip
import hashlib
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


if __name__ == "__main__":
    import tempfile

    def idx(kind, shape, numbers):
        lengths = b"".join(length.to_bytes(4, "big") for length in shape)
        return bytes([0, 0, kind, len(shape)]) + lengths + bytes(numbers)

    with tempfile.TemporaryDirectory() as folder:
        # Three mirrors in folders of this machine: one is gone, one has another file.
        contents = idx(8, (2, 2, 2), range(8)), idx(8, (2,), [5, 0])
        for name in ("gone", "changed", "right"):
            Path(folder, name).mkdir()
        for name, content in zip(NAMES[:2], contents, strict=True):
            Path(folder, "right", f"{name}.gz").write_bytes(gzip.compress(content))
            Path(folder, "changed", f"{name}.gz").write_bytes(gzip.compress(content + b"!"))
        Path(folder, "gone", f"{NAMES[0]}.gz").write_bytes(b"<html>404")

        class Tiny(MNIST):
            mirrors = [Path(folder, name).as_uri() + "/" for name in ("gone", "changed")]
            checksums = [hashlib.sha256(content).hexdigest() for content in contents]

        root = Path(folder, "here")
        try:
            Tiny(root)
        except FileNotFoundError as error:
            print(str(error).split("; ")[1], root.exists())  # -> download=True would fetch it False
        try:
            Tiny(root, download=True)
        except RuntimeError as error:
            for each in str(error).replace(Path(folder).as_uri(), "FOLDER").split("; "):
                print(each)
        # -> could not download train-images-idx3-ubyte: FOLDER/gone/: Not a gzipped file (b'<h')
        # -> FOLDER/changed/: the checksum is wrong
        print(list(root.rglob("*ubyte*")))  # -> []

        Tiny.mirrors = [*Tiny.mirrors, Path(folder, "right").as_uri() + "/"]
        print(len(Tiny(root, download=True)))  # -> 2
        print(sorted(path.name for path in root.rglob("*ubyte*")))
        # -> ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte']
        Tiny.mirrors = []
        print(Tiny(root)[0][1])  # -> 5
