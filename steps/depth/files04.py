"""Step files04: Loading in the package's dress

Step 78b built it with Python's pickle. Here the Unpickler of steps pickle01 to pickle11 does the
work. It needs a table of names, and what persistent ids stand for:

    "torch.float32", "torch.FloatStorage"     an element type
    "torch._utils._rebuild_tensor_v2"         a view of a storage, by `strided` (step storage06)
    "torch._utils._rebuild_parameter"         the same as a Parameter
    a persistent id                           the bytes of a member of the archive, read once

Nothing is imported for these names. "torch._utils" is only a text, and PyTorch need not be
installed: the names are a contract, kept since 2018, between writers and readers.

A storage is read once and kept under its key. All tensors that name the key are views of it, so
they share its memory again.

weights_only=False asks PyTorch to run whatever the pickle calls. Here it makes no difference before
step files14.

New: load, Reader.
Try: with PyTorch, torch.save(torch.nn.Linear(2, 2), "m.pt"). Then load("m.pt") here, and read the
error.
"""

import contextlib
import importlib
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
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
        _, dtype, key, _, _ = name
        if key not in self.storages:
            content = self.archive.read(f"{self.folder}/data/{key}")
            memory = np.frombuffer(content, numpy_dtype(dtype)).copy()  # bytes cannot be written to
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
    import tempfile

    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.creation import arange
    from tinytorch.ops.random import manual_seed, randn

    def again(value):
        save(value, file := io.BytesIO())
        return load(file)

    # A checkpoint: what a run needs to go on.
    manual_seed(0)
    net, other = Sequential(Linear(4, 3), Linear(3, 2)), Sequential(Linear(4, 3), Linear(3, 2))
    checkpoint = again({"model": net.state_dict(), "epoch": 3, "best": float("inf")})
    other.load_state_dict(checkpoint["model"])
    x = randn(5, 4)
    print("epoch", checkpoint["epoch"], "best", checkpoint["best"])  # -> epoch 3 best inf
    print("bit for bit:", bool((net(x) == other(x)).all()))  # -> bit for bit: True

    # Views share their memory again, with the strides that they had.
    matrix = arange(6.0).reshape(2, 3)
    whole, row, turned = again([matrix, matrix[1], matrix.T])
    row.zero_()
    print(whole.tolist(), turned.stride())  # -> [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]] (1, 3)
    weight = again(net[0].weight)
    print(type(weight).__name__, weight.requires_grad)  # -> Parameter True

    # From a path. And what the file of an object asks for is not run, whatever weights_only says.
    with tempfile.TemporaryDirectory() as folder:
        save(matrix.dtype, Path(folder, "type.pt"))
        print(load(Path(folder, "type.pt")))  # -> tinytorch.float32
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(print, protocol=2))
    try:
        load(file, weights_only=False)
    except ValueError as error:
        print(str(error).split(";")[0])
        # -> the pickle needs __builtin__.print, which is not run here
