"""Step files06: map_location: loading on another device

A network that was trained on a GPU is to run on a laptop. The file says "cuda:0" for each storage;
there is no such device on the laptop, so load has nowhere to put it. map_location says where it
should go instead:

    map_location="cpu"                        all of it
    map_location={"cuda:0": "cuda:1"}         by name
    map_location=function                     by a function of the storage and its device

So far every storage has been left in the memory of the host. Now `place` moves the storages, after
everything has been read, and lets the tensors look at the new memory. A file that is damaged then
never reaches the GPU. And an error in your function is not mistaken for damage of the file, which
step files09 reports.

The trap: tensors must not be moved one by one. Each would get a copy of its own. A storage moves
once, and all its tensors with it: they still share it afterwards.

New: locate, Reader.place. Changed: load takes map_location; Reader keeps its tensors.
Try: a function that returns the storage for one device only. Which tensors move?
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

    from tinytorch.core.device import Backend, register_backend
    from tinytorch.ops.creation import arange

    # Another device for the demo: arrays of a class of their own in the host's memory.
    class Remote(np.ndarray):
        pass

    def to_remote(array, index):
        return array.copy().view(Remote)

    register_backend("remote", Backend(np, Remote, to_remote, lambda array: array.view(np.ndarray)))
    x = wrap(to_remote(np.arange(4.0), None), Device("remote"))
    save([x, x[1:], arange(2)], file := io.BytesIO())

    def devices(map_location=None):
        return [str(value.device) for value in load(file, map_location)]

    print(devices())  # -> ['remote', 'remote', 'cpu']
    print(devices("cpu"))  # -> ['cpu', 'cpu', 'cpu']
    print(devices({"cpu": "remote"}))  # -> ['remote', 'remote', 'remote']

    # A function sees the bytes of each storage, and the name of its device. Here it only looks.
    seen = []
    print(devices(lambda storage, location: seen.append((storage.nbytes(), location))))
    # -> ['remote', 'remote', 'cpu']
    print(seen)  # -> [(32, 'remote'), (16, 'cpu')]
    print(devices(lambda storage, location: storage))  # -> ['cpu', 'cpu', 'cpu']

    # One storage stays one storage.
    whole, part, _ = load(file, "cpu")
    part.zero_()
    print(whole)  # -> tensor([0., 0., 0., 0.], dtype=tinytorch.float64)

    # A device that is not there, and a mistake in the function.
    for wrong in ("elsewhere", lambda storage, location: {}[location]):
        try:
            load(file, wrong)
        except (RuntimeError, KeyError) as error:
            print(type(error).__name__, str(error).split(". ")[-1])
    # -> RuntimeError load(..., map_location='cpu') reads it anyway
    # -> KeyError 'remote'
