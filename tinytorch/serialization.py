"""save and load: values and tensors in a file that is data, and no program.

The file is a zip archive, not compressed, that any zip tool opens:

    tinytorch.json    the value; where each tensor lies in which memory; its shape, strides and type
    memory/0 ...      the bytes of each memory, with the checksum that a zip archive keeps

To load is to read JSON and to copy bytes. No name of a class or function stands in the file, so
that no file can make `load` call anything: a pickle can.
"""

import contextlib
import json
import math
import os
import secrets
import sys
import zipfile
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.dtype import DType, numpy_dtype
from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.storage import UntypedStorage, address_of, memory_of, strided

FORMAT = f"version 1, {sys.byteorder} endian"  # numbers stay in the order of the machine's bytes

FOREIGN = "torch.save() wrote a pickle, which is a program, and none is run; write safetensors"

# The containers that a file can hold, by name. In JSON each value that JSON itself does not know is
# a list of two: its kind, and what is in it.
sequences = {"list": list, "tuple": tuple, "Size": Size}

mappings = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}


def reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """How many bytes lie from the first element of an array to the end of its last one."""
    if 0 in shape:
        return 0
    return sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + itemsize


class Writer:
    """Takes a value apart: what JSON can say, and the memory under its tensors."""

    def __init__(self):
        self.tensors: list[dict] = []
        self.storages: list[dict] = []
        self.memories: list[tuple[Any, Device]] = []  # the bytes of each storage, and where
        self.numbers: dict[int, int] = {}  # id of a tensor or of a storage -> its place in the list

    def encode(self, value: Any, path: str) -> Any:
        """The value as JSON. `path` says in a message where it stands."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:  # JSON has no inf and no nan
            return value if math.isfinite(value) else ["float", repr(value)]
        if kind in (DType, Device):
            return [kind.__name__, value.name if kind is DType else str(value)]
        if isinstance(value, Tensor):
            return ["Tensor", self.tensor(value)]
        if kind in sequences.values():
            return [kind.__name__, [self.encode(v, f"{path}[{i}]") for i, v in enumerate(value)]]
        if kind in mappings.values():
            items = [(k, self.encode(v, f"{path}[{k!r}]")) for k, v in value.items()]
            return [kind.__name__, [(self.encode(k, f"a key of {path}"), v) for k, v in items]]
        raise TypeError(f"cannot save a {kind.__name__} ({path}); a state_dict() can be saved")

    def tensor(self, tensor: Tensor) -> int:
        """The number of a tensor; the same tensor again has the same number."""
        if id(tensor) not in self.numbers:
            array = tensor.array
            if any(step < 0 or step % array.itemsize for step in array.strides):
                array = array.copy()
            number, start = self.storage(array, tensor.device)
            entry = {"storage": number, "start": start, "parameter": isinstance(tensor, Parameter)}
            entry |= {"shape": array.shape, "strides": array.strides, "dtype": tensor.dtype.name}
            entry |= {"requires_grad": tensor.requires_grad}
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(entry)
        return self.numbers[id(tensor)]

    def storage(self, array: Any, device: Device) -> tuple[int, int]:
        """The number of the memory that `array` shows, and the byte of it where the array starts.

        The file gets the bytes from the first to the last one that a saved tensor shows.
        """
        owner = storage_of(array)
        start = address_of(array) - address_of(owner) if array.size else 0
        stop = start + reach(array.shape, array.strides, array.itemsize)
        if id(owner) not in self.numbers:
            self.numbers[id(owner)] = len(self.storages)
            self.storages.append({"device": str(device), "first": start, "end": stop})
            self.memories.append((memory_of(owner).view(device.xp.uint8), device))
        number = self.numbers[id(owner)]
        entry, size = self.storages[number], len(self.memories[number][0])
        # On 16 bytes: each element lies in the file's memory as it has to lie in the machine's.
        entry["first"] = min(entry["first"], start) // 16 * 16
        entry["end"] = min(max(entry["end"], (stop + 15) // 16 * 16), size)
        return number, start

    def write(self, value: Any, file: BinaryIO) -> None:
        content = {"format": FORMAT, "value": self.encode(value, "the value")}
        content |= {"storages": self.storages, "tensors": self.tensors}
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("tinytorch.json"), json.dumps(content))
            for number, (memory, device) in enumerate(self.memories):
                first, end = self.storages[number]["first"], self.storages[number]["end"]
                host = device.backend.to_numpy(memory[first:end])
                archive.writestr(zipfile.ZipInfo(f"memory/{number}"), host.data)


# What comes up in a file that is not as a Writer wrote it.
DAMAGE = zipfile.BadZipFile, zlib.error, EOFError, LookupError, TypeError, ValueError, OverflowError


class Reader:
    """Puts together what a Writer took apart. It believes nothing that the file says unchecked."""

    def __init__(self, archive: zipfile.ZipFile, content: dict, map_location: Any):
        self.archive, self.content, self.map_location = archive, content, map_location
        self.memories = [self.memory(n) for n in range(len(content["storages"]))]
        self.tensors = [self.tensor(entry) for entry in content["tensors"]]

    def memory(self, number: int) -> tuple[Any, Device]:
        """The bytes of a storage on the device where they belong."""
        host = np.frombuffer(bytearray(self.archive.read(f"memory/{number}")), np.uint8)
        location, chosen = self.content["storages"][number]["device"], self.map_location
        if isinstance(chosen, dict):
            chosen = chosen.get(location)
        elif callable(chosen):
            if (moved := chosen(UntypedStorage(host, cpu), location)) is not None:
                return moved.memory, moved.device
            chosen = None
        try:
            device = as_device(location if chosen is None else chosen)
            return device.backend.from_numpy(host, device.index), device
        except RuntimeError as error:
            raise RuntimeError(f"{error}. load(..., map_location='cpu') reads it anyway") from error

    def tensor(self, entry: dict) -> Tensor:
        memory, device = self.memories[entry["storage"]]
        dtype, shape = numpy_dtype(DType.by_name[entry["dtype"]]), tuple(entry["shape"])
        strides = tuple(entry["strides"])
        start = entry["start"] - self.content["storages"][entry["storage"]]["first"]
        stop = start + reach(shape, strides, dtype.itemsize)
        if min(*shape, *strides, start, 0) < 0 or stop > len(memory):
            raise ValueError("a tensor lies outside of its memory")
        array = strided(memory[start:stop].view(dtype), shape, strides)
        out = wrap(array, device, Parameter if entry["parameter"] else Tensor)
        out.requires_grad = entry["requires_grad"]
        return out

    def decode(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, inside = value
        if kind in sequences:
            return sequences[kind]([self.decode(item) for item in inside])
        if kind in mappings:
            return mappings[kind]({self.decode(key): self.decode(item) for key, item in inside})
        if kind == "Tensor":
            return self.tensors[inside]
        return {"float": float, "DType": DType.by_name.__getitem__, "Device": Device}[kind](inside)


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file, which takes the place of `path` when all of it is on the disk, and only then."""
    target = Path(path).resolve()  # not the link: what it points to
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:  # whatever it was: leave nothing behind, and pass it on
        unfinished.unlink(missing_ok=True)
        raise


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2) -> None:
    """Writes a value to a file: tensors, numbers, strings, None, dtypes, devices, and lists, tuples
    and dicts of them, such as the state_dict() of a module.

    Tensors that share memory share it again when they are loaded; of a memory no more is written
    than the tensors span. Where `f` is a path, a file that is there stays whole until the new one
    is; it may also be a file, opened for writing in binary mode. Here is no pickle: what PyTorch
    can be told about its own changes nothing. TypeError for what a file cannot hold.
    """
    opened = replacing(f) if isinstance(f, (str, os.PathLike)) else contextlib.nullcontext(f)
    with opened as file:
        Writer().write(obj, file)


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None) -> Any:
    """Reads what `save` wrote. No file can make it execute anything.

    Args:
        f: a path, or a file opened for reading in binary mode.
        map_location: the device for all tensors; or a dict of devices, {"cuda:0": "cpu"}; or a
            function that gets each storage, on the CPU, and the name of the device where it was,
            and returns a storage, or None. By default each tensor goes where it was.
        weights_only: True or False, it is all the same here. PyTorch executes a file with False.
        pickle_module, mmap: how PyTorch reads. Here they make no difference.
    Raises RuntimeError for a file that is damaged, ends too early, or is none of `save`'s, and
    where a device is not there.
    """
    name = f if isinstance(f, (str, os.PathLike)) else "the file"
    try:
        with zipfile.ZipFile(f) as archive:
            if any(path.endswith("/data.pkl") for path in archive.namelist()):
                raise RuntimeError(f"{name} is PyTorch's: {FOREIGN}")
            content = json.loads(archive.read("tinytorch.json"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']}, not {FORMAT}")
            return Reader(archive, content, map_location).decode(content["value"])
    except DAMAGE as error:
        raise RuntimeError(f"{name} is damaged, incomplete or not from save(): {error}") from error
