"""Step files03: Writing PyTorch's files: zip and alignment

Step 78b has told what a file of PyTorch is: a zip archive with a pickle and the bytes of the
storages. Here it is written.

    archive/data.pkl      the value
    archive/data/0        the memory of the first tensor, and of all its views
    archive/byteorder     which byte of a number comes first
    archive/version       and a few more, which say how the file was written

The zip does not compress, and each member starts at a multiple of 64 bytes. So a program may map
the file into memory and use the storages where they lie. For this, a field of the header is filled
with as many "Z" as needed. PyTorch does exactly this, and torch.load reads what we write.

The pickle is written to memory before the file is opened. A value that cannot be saved, or one that
is nested more deeply than Python can follow, leaves no half of a file behind.

New: save, add_member.
Try: at the end of the demo, save(matrix, "matrix.pt"). Unzip this file, and look at archive/data/0
with xxd.
"""

import importlib
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tinytorch.core.device import Device
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.storage import address_of, memory_of
from tinytorch.serialization.pickling import Name, PersistentId, Pickler, plain_calls

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
STORAGES = "Bool Byte Char Short Int Long Half BFloat16 Float Double".split()
# PyTorch's class of storages for each element type.
storage_names = {d: f"torch.{s}Storage" for d, s in zip(DTYPES, STORAGES, strict=True)}


class Writer:
    """Collects the storages of the tensors that a Pickler meets."""

    def __init__(self):
        # id of the array that owns the memory -> key in the file, type, bytes, device, that array
        self.storages: dict[int, tuple[str, DType, Any, Device, Any]] = {}
        self.calls: dict[type, Callable[[Any], tuple]] = {
            **plain_calls,
            Size: lambda value: ("torch.Size", tuple(value)),
            Device: lambda value: ("torch.device", str(value)),
            Tensor: self.call_of_tensor,
            Parameter: self.call_of_parameter,
        }

    def call_of_tensor(self, tensor: Tensor) -> tuple:
        """A tensor as a call that makes a view of a storage."""
        array, xp = tensor.array, tensor.device.xp
        owner, size = storage_of(array), array.itemsize
        start = address_of(array) - address_of(owner) if array.size else 0
        memory = memory_of(owner).view(xp.uint8)
        if any(n < 0 or n % size for n in (start, memory.size, *array.strides)):
            # PyTorch counts in whole elements. A field of NumPy's records is written as a copy.
            owner = array = array.copy()
            start, memory = 0, memory_of(array).view(xp.uint8)
        new = str(len(self.storages)), tensor.dtype, memory, tensor.device, owner
        key, dtype, *_ = self.storages.setdefault(id(owner), new)
        if dtype is not tensor.dtype:
            raise RuntimeError(
                f"Cannot save multiple tensors or storages that view the same data as different "
                f"types: {dtype} and {tensor.dtype}"
            )
        count, strides = memory.size // size, wrap(array, tensor.device).stride()
        storage = "storage", Name(storage_names[dtype.name]), key, str(tensor.device), count
        view = start // size, tuple(array.shape), strides, tensor.requires_grad, OrderedDict()
        return "torch._utils._rebuild_tensor_v2", PersistentId(storage), *view

    def call_of_parameter(self, p: Parameter) -> tuple:
        return "torch._utils._rebuild_parameter", p.detach(), p.requires_grad, OrderedDict()


def add_member(archive: zipfile.ZipFile, name: str, content: bytes | memoryview) -> None:
    """Writes a member of the archive so that its content starts at a multiple of 64 bytes."""
    info = zipfile.ZipInfo(f"archive/{name}")
    info.create_system = 0  # on every system the same bytes
    # Before the content: a header of 30 bytes, the name, and extra fields, which begin with a mark
    # and their length. zipfile adds a field of 20 bytes where the content is very long.
    long = 20 if len(content) * 1.05 > zipfile.ZIP64_LIMIT else 0
    padding = -(archive.start_dir + 30 + len(info.filename) + 4 + long) % 64
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(info, content)


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2) -> None:
    """Writes a value to a file that PyTorch's load() reads, too: tensors, parameters, numbers, str,
    bytes, None, dtypes, devices, and lists, tuples, sets and dicts of them, such as a state_dict().

    Tensors that share memory share it again when they are loaded. The file holds all memory that a
    tensor is a view of: save `x[0].clone()` to save no more than a row.

    Args:
        f: a path, or a file opened for writing in binary mode.
        pickle_module, pickle_protocol: how PyTorch writes. Here they make no difference.
    Raises:
        TypeError: for a value of another type.
        RuntimeError: for tensors that show the same memory as different types.
        ValueError: for integers of more than 255 bytes, and for a value that is nested too deeply.
    """
    writer = Writer()
    pickler = Pickler(writer.calls)
    try:
        pickler.write(obj, "the value")
    except RecursionError:
        raise ValueError("cannot save a value that is nested so deeply") from None
    with zipfile.ZipFile(f, "w") as archive:
        add_member(archive, "data.pkl", pickler.program + pickle.STOP)
        add_member(archive, ".format_version", b"1")
        add_member(archive, ".storage_alignment", b"64")
        add_member(archive, "byteorder", sys.byteorder.encode())
        for key, _, memory, device, _ in writer.storages.values():
            add_member(archive, f"data/{key}", device.backend.to_numpy(memory).data)
        add_member(archive, "version", b"3\n")


if __name__ == "__main__":
    import io

    from tinytorch.ops.creation import arange

    matrix = arange(24.0).reshape(4, 6)
    save({"matrix": matrix, "row": matrix[1], "p": Parameter(arange(3.0))}, file := io.BytesIO())
    with zipfile.ZipFile(file) as archive:
        print(archive.namelist()[:3])
        # -> ['archive/data.pkl', 'archive/.format_version', 'archive/.storage_alignment']
        print(archive.namelist()[3:])
        # -> ['archive/byteorder', 'archive/data/0', 'archive/data/1', 'archive/version']
        # The storage, as it lies in memory.
        print(archive.read("archive/data/0") == matrix.numpy().tobytes())  # -> True
    place = file.getvalue().index(matrix.numpy().tobytes())
    print("at a multiple of 64:", place % 64 == 0)  # -> at a multiple of 64: True

    # A row costs as much as its matrix, a copy of it only as much as itself.
    large = arange(250_000.0).reshape(500, 500)
    for part in (large[0], large[0].clone()):
        save(part, file := io.BytesIO())
        print(file.tell() > 1_000_000)
    # -> True
    # -> False

    deep = []
    for _ in range(10_000):
        deep = [deep]
    try:
        save(deep, file := io.BytesIO())
    except ValueError as error:
        print(error, file.tell())  # -> cannot save a value that is nested so deeply 0
