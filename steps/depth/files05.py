"""Step files05: Loading: no second copy

To load a storage of 10 GB, step files04 needs 20 GB of memory. The archive gives its content as
bytes. They cannot be written to, so they are copied into an array, and for a moment both are there.

The size of a storage is known before anything is read: its persistent id has the number of
elements. So the array is made first, and readinto fills it:

    np.empty(count)  <-  1 MB  <-  1 MB  <-  ...        peak: the storage and 1 MB

The trap: zipfile copies what it reads, so a single readinto of everything would need the memory
twice. Pieces of 1 MB make that copy small, and are large enough to be fast.

(PyTorch: load(..., mmap=True) does not even read the file: the system reads a page of memory when
it is used.)

Changed: Reader.load_storage.
Try: a piece of 1 << 30 bytes. What is the peak then?
"""

import contextlib
import importlib
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import DType, numpy_dtype
from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.storage import UntypedStorage, address_of, memory_of, strided
from tinytorch.serialization.pickling import (
    Call,
    Name,
    PersistentId,
    Pickler,
    Unpickler,
    plain_calls,
    plain_names,
)

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


class Reader:
    """Reads the members of an archive, and makes the tensors that the pickle asks for."""

    def __init__(self, file: BinaryIO):
        self.archive = zipfile.ZipFile(file)
        self.folder = self.archive.namelist()[0].partition("/")[0]
        self.storages: dict[str, UntypedStorage] = {}
        self.names = {
            **plain_names,
            **{f"torch.{name}": DType.by_name[name] for name in DTYPES},
            **{storage_names[name]: DType.by_name[name] for name in DTYPES},
            "torch.Size": Call(Size, (tuple,)),
            "torch.device": Call(Device, (str, int)),
            "torch._utils._rebuild_tensor_v2": Call(
                self.rebuild_tensor, (UntypedStorage, int, tuple, tuple, bool, OrderedDict)
            ),
            "torch._utils._rebuild_parameter": Call(
                self.rebuild_parameter, (Tensor, bool, OrderedDict)
            ),
        }

    def run(self) -> Any:
        program = self.archive.read(f"{self.folder}/data.pkl")
        return Unpickler(program, self.names, self.load_storage).run()

    def load_storage(self, name: Any) -> UntypedStorage:
        """The storage with this persistent id, in the memory of the host."""
        _, dtype, key, _, count = name
        if key not in self.storages:
            info = self.archive.getinfo(f"{self.folder}/data/{key}")
            memory = np.empty(count, numpy_dtype(dtype))
            content, piece = memory.view(np.uint8), 1 << 20
            with self.archive.open(info) as member:
                for start in range(0, content.size, piece):  # each is copied on its way
                    member.readinto(content[start : start + piece])
            self.storages[key] = UntypedStorage(memory, cpu)
        return self.storages[key]

    def rebuild_tensor(self, storage, offset, size, stride, requires_grad, hooks) -> Tensor:
        """A view of a storage. The table of names has the types of the arguments."""
        memory = storage.memory[offset:]
        array = strided(memory, size, tuple(step * memory.itemsize for step in stride))
        return self.finish(wrap(array, storage.device), requires_grad)

    def rebuild_parameter(self, data: Tensor, requires_grad: bool, hooks: OrderedDict) -> Tensor:
        return self.finish(wrap(data.array, data.device, Parameter), requires_grad)

    def finish(self, tensor: Tensor, requires_grad: bool) -> Tensor:
        tensor.requires_grad = requires_grad
        return tensor


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


def load(f, pickle_module=None, *, weights_only=True, mmap=None) -> Any:
    """Reads what `save` or PyTorch's save() wrote. No file can make it execute anything.

    Args:
        f: a path, or a file opened for reading in binary mode.
        weights_only: True and False do the same here. With False, PyTorch loads objects of any
            class by running the code that the file names; here they are refused all the same.
        pickle_module, mmap: how PyTorch reads. Here they make no difference.
    """
    is_path = isinstance(f, (str, os.PathLike))
    with open(f, "rb") if is_path else contextlib.nullcontext(f) as file:
        reader = Reader(file)
        return reader.run()


if __name__ == "__main__":
    import io
    import tracemalloc

    from tinytorch.ops.creation import arange

    class WholeReader(Reader):
        """As in step files04."""

        def load_storage(self, name):
            _, dtype, key, _, _ = name
            content = self.archive.read(f"{self.folder}/data/{key}")
            return UntypedStorage(np.frombuffer(content, numpy_dtype(dtype)).copy(), cpu)

    numbers = arange(4_000_000)
    save(numbers, file := io.BytesIO())

    def peak(reader):
        """The largest amount of memory while it reads, in sizes of the storage."""
        tracemalloc.start()
        value = reader(file).run()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return value, most / numbers.storage().nbytes()

    value, whole = peak(WholeReader)
    print(f"as one value: {whole:.1f} times the storage")  # -> ...
    value, pieces = peak(Reader)
    print(f"in pieces:    {pieces:.1f} times the storage")  # -> ...
    print(whole > 1.9, pieces < 1.3)  # -> True True
    print(bool((value == numbers).all()), len(load(file)))  # -> True 4000000
