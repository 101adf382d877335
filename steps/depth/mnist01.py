"""Step mnist01: IDX: the file format of MNIST

The digits so far came with the package, as text. MNIST, the data set of most examples, comes as
four files of bytes, and a byte says nothing about itself: the same four can be an integer, a float,
or four pixels. A file has a meaning because its writer and its reader have agreed on one. That of
MNIST's files is called IDX:

    0 0      two zeros
    8        the type of the numbers: 8 is a byte from 0 to 255, 13 a float of 4 bytes, ...
    3        how many dimensions
    0 0 234 96   0 0 0 28   0 0 0 28      their lengths, 4 bytes each: 60000, 28, 28
    ...      the numbers, in row-major order (step 69c)

frombuffer gives the bytes a dtype, and makes an array of them without a copy.

The trap is the order of the bytes in a number. IDX has the most significant byte first, as we write
numbers: 0 0 234 96 is 234 * 256 + 96 = 60000. Nearly all processors today have it last, and would
read 1.6 billion. In a dtype of NumPy, ">" stands for the first order. The array that is returned
has the order of the processor, as no other code expects the other one.

New: read_idx. Moved: steps files15 and files16, to tinytorch/serialization/safetensors.py.
Try: ">u4" becomes "<u4". What does the demo say of the shape?
"""

import importlib
from pathlib import Path

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, from_numpy

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def read_idx(path: Path) -> Tensor:
    """The tensor in an IDX file.

    Such a file begins with two zeros, a number for the type, and the number of dimensions. Their
    lengths follow, 4 bytes each, the highest first, and then the numbers themselves.
    """
    types = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    with open(path, "rb") as file:
        head = file.read(4)
        dtype = np.dtype(types[head[2]])
        shape = np.frombuffer(file.read(4 * head[3]), ">u4", head[3]).tolist()
        array = np.frombuffer(file.read(), dtype).reshape(shape)
    return from_numpy(array.astype(dtype.newbyteorder("=")))


if __name__ == "__main__":
    import tempfile

    # The four bytes of 60000, in both orders.
    four = bytes([0, 0, 234, 96])
    print(np.frombuffer(four, ">u4")[0], np.frombuffer(four, "<u4")[0])  # -> 60000 1625948160

    # 2 images of 1 by 3 pixels, and 3 labels.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny-idx3-ubyte")
        path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, *range(6)]))
        images = read_idx(path)
        print(images.tolist(), images.dtype)  # -> [[[0, 1, 2]], [[3, 4, 5]]] tinytorch.uint8
        path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
        print(read_idx(path).tolist())  # -> [7, 2, 1]

        # Numbers of 2 and of 4 bytes.
        path.write_bytes(bytes([0, 0, 11, 1, 0, 0, 0, 2, 1, 0, 255, 255]))
        print(read_idx(path).tolist())  # -> [256, -1]
        path.write_bytes(bytes([0, 0, 13, 1, 0, 0, 0, 1]) + np.array(0.5, ">f4").tobytes())
        numbers = read_idx(path)
        print(numbers.tolist(), numbers.array.dtype.isnative)  # -> [0.5] True
