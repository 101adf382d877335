"""Step files07: Byte order: files from another kind of machine

A number of four bytes can lie in memory in two orders. Most machines today have the least
significant byte first ("little endian"), some have the most significant byte first ("big endian"):

    1 as int32        little  01 00 00 00        big  00 00 00 01 = 16777216, read the wrong way

save writes a storage as it lies in memory, and says in archive/byteorder which way that is. Loaded
on a machine of the other kind, each number would be wrong, without an error.

So the reader compares the order of the file with sys.byteorder, and turns the bytes of each number
around if they differ. NumPy's byteswap does it in place; the element type is not needed, only its
size, hence the unsigned integers.

A word that is neither "little" nor "big" is refused: it says nothing about the order.

The trap: a file without the member. Older versions of PyTorch did not write it. load takes the
numbers of such a file to be in this machine's order, which it cannot check.

Changed: Reader.__init__, Reader.load_storage.
Try: leave byteswap out. Which numbers does the demo print?
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
from tinytorch.ops.storage import UntypedStorage, address_of, memory_of, offset_of, strided
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
        self.order = sys.byteorder
        if f"{self.folder}/byteorder" in self.archive.namelist():
            self.order = self.archive.read(f"{self.folder}/byteorder").decode()
        if self.order not in ("little", "big"):
            raise ValueError(f"Unknown endianness type: {self.order}")
        self.storages: dict[str, tuple[UntypedStorage, str]] = {}  # and the device of each
        self.tensors: list[Tensor] = []
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
        _, dtype, key, location, count = name
        if key not in self.storages:
            info = self.archive.getinfo(f"{self.folder}/data/{key}")
            memory = np.empty(count, numpy_dtype(dtype))
            content, piece = memory.view(np.uint8), 1 << 20
            with self.archive.open(info) as member:
                for start in range(0, content.size, piece):  # each is copied on its way
                    member.readinto(content[start : start + piece])
            if self.order != sys.byteorder:
                memory.view(f"u{dtype.itemsize}").byteswap(inplace=True)
            self.storages[key] = UntypedStorage(memory, cpu), location
        return self.storages[key][0]

    def rebuild_tensor(self, storage, offset, size, stride, requires_grad, hooks) -> Tensor:
        """A view of a storage. The table of names has the types of the arguments."""
        memory = storage.memory[offset:]
        array = strided(memory, size, tuple(step * memory.itemsize for step in stride))
        return self.finish(wrap(array, storage.device), requires_grad)

    def rebuild_parameter(self, data: Tensor, requires_grad: bool, hooks: OrderedDict) -> Tensor:
        return self.finish(wrap(data.array, data.device, Parameter), requires_grad)

    def finish(self, tensor: Tensor, requires_grad: bool) -> Tensor:
        tensor.requires_grad = requires_grad
        self.tensors.append(tensor)
        return tensor

    def place(self, map_location: Any) -> None:
        """Moves the storages to the devices where they belong, and the tensors with them."""
        moved = {
            id(storage.memory): locate(storage, location, map_location)
            for storage, location in self.storages.values()
        }
        for tensor in self.tensors:
            array, storage = tensor.array, moved[id(storage_of(tensor.array))]
            memory = storage.memory[offset_of(array) :]
            tensor.array = strided(memory, array.shape, array.strides)
            tensor.device = storage.device


def locate(storage: UntypedStorage, location: str, map_location: Any) -> UntypedStorage:
    """The storage on its device: `location`, unless map_location (see `load`) says otherwise."""
    target = location
    if isinstance(map_location, dict):
        target = map_location.get(location, location)
    elif callable(map_location):
        memory = storage.memory
        moved = map_location(UntypedStorage(memory.view(np.uint8), cpu), location)
        if moved is not None:
            return UntypedStorage(moved.memory.view(memory.dtype), moved.device)
    elif map_location is not None:
        target = map_location
    try:
        return storage.to(target)
    except RuntimeError as error:
        raise RuntimeError(f"{error}. load(..., map_location='cpu') reads it anyway") from error


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


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None) -> Any:
    """Reads what `save` or PyTorch's save() wrote. No file can make it execute anything.

    Args:
        f: a path, or a file opened for reading in binary mode.
        map_location: the device for all tensors; or a dict of devices, {"cuda:0": "cpu"}; or a
            function that gets each storage, on the CPU, and the name of the device where it was,
            and returns a storage, or None. By default each tensor goes where it was.
        weights_only: True and False do the same here. With False, PyTorch loads objects of any
            class by running the code that the file names; here they are refused all the same.
        pickle_module, mmap: how PyTorch reads. Here they make no difference.
    Raises:
        RuntimeError: for a tensor of a device that is not there.
    """
    is_path = isinstance(f, (str, os.PathLike))
    with open(f, "rb") if is_path else contextlib.nullcontext(f) as file:
        reader = Reader(file)
        value = reader.run()
    reader.place(map_location)
    return value


if __name__ == "__main__":
    import io

    from tinytorch.ops.creation import arange

    other = {"little": "big", "big": "little"}[sys.byteorder]

    def from_other_machine(value, order=other):
        """The file that a machine of the other kind would write. (`value`: integers of 8 bytes.)"""
        save(value, file := io.BytesIO())
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(turned := io.BytesIO(), "w") as new:
            new.writestr("archive/data.pkl", old.read("archive/data.pkl"))
            if order:
                new.writestr("archive/byteorder", order)
            new.writestr("archive/data/0", value.numpy().byteswap().tobytes())
        return turned

    print(load(from_other_machine(arange(3))))  # -> tensor([0, 1, 2])

    # Without the member: read as it lies. 1 has become 2^56.
    print(load(from_other_machine(arange(3), order=None)).tolist()[1] == 2**56)  # -> True
    try:
        load(from_other_machine(arange(3), "middle"))
    except ValueError as error:
        print(error)  # -> Unknown endianness type: middle
    save(arange(3), file := io.BytesIO())
    print(load(file))  # -> tensor([0, 1, 2])
