"""Step mnist02: IDX: compressed and damaged files

What lies on a disk may be anything: a "not found" page that a browser saved, half a file, an empty
one, or a file that was made to attack the program. read_idx of step mnist01 answers with a
KeyError, a ValueError about shapes, an IndexError. None of them names the file.

And the files are distributed compressed: 11 MB instead of 55. A file whose name ends in .gz can be
unpacked while it is read. But then `read()` is dangerous: a megabyte of a gzip file may unpack to a
gigabyte of zeros. So the reader checks the header first, and never reads more than it expects:

    two zeros, a known type         or it is not an IDX file
    size = product of the lengths   as Python's integers, which do not overflow
    size <= 1 MB + 100 * the file   or the header lies. Images do not come near a hundredth
    read(size + 1)                  one more than there should be, so that a longer file is noticed

All ways to fail become one error, a ValueError that names the file; `from error` keeps the cause.

The trap: np.prod of integers wraps around at 2^63. Three lengths of 2^31 would have a small size.

Changed: read_idx.
Try: read(size) in place of read(size + 1). Which of the demo's files are accepted then?
"""

import gzip
import importlib
import zlib
from pathlib import Path

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, from_numpy

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import tempfile

    head = bytes([0, 0, 8, 1, 0, 0, 0, 3])
    liars = {
        "a page": b"<html>404",
        "nothing": b"",
        "half of it": head + bytes([7, 2]),
        "too much": head + bytes([7, 2, 1, 0]),
        "16 million": bytes([0, 0, 8, 1, 1, 0, 0, 0, *range(8)]),
        "2^93 bytes": bytes([0, 0, 8, 3, *[128, 0, 0, 0] * 3]),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "labels-idx1-ubyte")
        for name, content in liars.items():
            path.write_bytes(content)
            try:
                read_idx(path)
            except ValueError as error:
                print(f"{name:10} {str(error).split(': ', 1)[1].split(' for the')[0]}")
        # -> a page     it is not an IDX file
        # -> nothing    it is not an IDX file
        # -> half of it cannot reshape array of size 2 into shape (3,)
        # -> too much   cannot reshape array of size 4 into shape (3,)
        # -> 16 million it is far too short
        # -> 2^93 bytes it is far too short

        # Compressed: whole, and cut in the middle.
        path = Path(folder, "labels-idx1-ubyte.gz")
        path.write_bytes(gzip.compress(head + bytes([7, 2, 1])))
        print(read_idx(path).tolist())  # -> [7, 2, 1]
        path.write_bytes(path.read_bytes()[:-9])
        try:
            read_idx(path)
        except ValueError as error:
            print(type(error.__cause__).__name__)  # -> EOFError
