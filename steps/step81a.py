"""Step 81a: Saved, and loaded without fear

A network that has learned for a week lives in memory; when the process ends, it is gone. Python has
pickle for that. But a pickle is a program: it names functions and says what to call them with, and
loading it means running it. So anyone who sends you weights as a pickle can run code of theirs on
your machine. The demo loads a pickle that prints. It could just as well have deleted your files.

So our file holds only data. What JSON knows is JSON; everything else is a pair [kind, content], and
`load` has a line for each kind that it knows, and refuses all others. A tensor is a number that
points into a list of entries:

    {"storage": 0, "start": 48, "shape": [2, 3], "strides": [4, 12], "dtype": "float32", ...}

as in step 66a: shape, strides and start, on top of flat memory. The bytes of each memory are in the
file once. So tensors that share memory share it again after a load, as tied weights must, and a
slice of a large tensor costs no more than the slice. The numbers come from a file, and a file may
lie: before they become a tensor, they are checked to lie within the memory.

The second danger is the moment of saving. `open(path, "wb")` empties the file first. A process that
is killed then leaves neither the old checkpoint nor the new one. `replacing` writes another file
beside it, waits until it is on the disk (fsync), and renames it in one move: os.replace does
everything or nothing.

A file from a GPU can be read without one: map_location says where each storage goes, by name, by a
dict of names, or by a function. (torch.save writes a zip as well, with a pickle in it. torch.load
reads that with weights_only=True, the default since 2.6, by an unpickler that knows few names.
Neither library reads the other's file; step 81b has one that both read.)

New: save, load, Writer, Reader, replacing, reach.
Try: let the demo's file lie in another way: replace b'"start": 0' by b'"start": -8'. Or save a
lambda.
"""

import contextlib
import importlib
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

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import io
    import pickle
    import tempfile

    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.creation import arange, zeros
    from tinytorch.ops.random import manual_seed, randn

    scratch = tempfile.TemporaryDirectory()
    folder = Path(scratch.name)

    # A pickle is a program: to load it is to run it.
    class Trap:
        def __reduce__(self):
            return print, ("a pickle calls what it likes",)

    (folder / "trap").write_bytes(pickle.dumps(Trap()))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        pickle.loads((folder / "trap").read_bytes())
    print("pickle printed:", said.getvalue().strip())
    # -> pickle printed: a pickle calls what it likes
    try:
        load(folder / "trap")
    except RuntimeError as error:
        print(str(error).replace(f"{folder}{os.sep}", ""))
        # -> trap is damaged, incomplete or not from save(): File is not a zip file
    try:
        save({"net": [1.5, Trap()]}, folder / "trap")
    except TypeError as error:
        print(str(error).split(";")[0])
        # -> cannot save a Trap (the value['net'][1])

    # A checkpoint: what a run needs to go on.
    manual_seed(0)
    net, other = Sequential(Linear(4, 3), Linear(3, 2)), Sequential(Linear(4, 3), Linear(3, 2))
    save({"model": net.state_dict(), "epoch": 3, "best": math.inf}, folder / "run.tt")
    checkpoint = load(folder / "run.tt")
    other.load_state_dict(checkpoint["model"])
    x = randn(5, 4)
    print("epoch", checkpoint["epoch"], "best", checkpoint["best"])  # -> epoch 3 best inf
    print("bit for bit:", (net(x) == other(x)).all().item())  # -> bit for bit: True

    # A function may say where each storage goes. This one only looks.
    seen = []
    load(folder / "run.tt", map_location=lambda storage, at: seen.append((storage.nbytes(), at)))
    print(seen)  # -> [(48, 'cpu'), (12, 'cpu'), (24, 'cpu'), (8, 'cpu')]

    # What is in the file. Any zip tool shows it.
    with zipfile.ZipFile(folder / "run.tt") as archive:
        print(archive.namelist())
        # -> ['tinytorch.json', 'memory/0', 'memory/1', 'memory/2', 'memory/3']
        content = json.loads(archive.read("tinytorch.json"))
    print(content["value"][1][1:])  # -> [['epoch', 3], ['best', ['float', 'inf']]]
    print(content["tensors"][0]["shape"], content["tensors"][0]["strides"])  # -> [3, 4] [16, 4]

    # Shared memory is shared again, and a slice costs no more than the slice.
    large = zeros(1000, 1000)
    save([large[2], large[2, :5], large[3]], folder / "rows.tt")
    row, part, next_row = load(folder / "rows.tt")
    row.add_(1)
    print(part, next_row.sum())  # -> tensor([1., 1., 1., 1., 1.]) tensor(0.)
    print("less than 10 KB of 4 MB:", (folder / "rows.tt").stat().st_size < 10_000)
    # -> less than 10 KB of 4 MB: True

    # A file changed by accident, one that ends too early, one that lies, and one of PyTorch's.
    save(arange(10), folder / "x.tt")
    good = (folder / "x.tt").read_bytes()
    place = good.index(arange(10).numpy().tobytes())
    flipped = good[: place + 8] + b"\x02" + good[place + 9 :]
    with zipfile.ZipFile(lying := io.BytesIO(), "w") as archive:
        text = zipfile.ZipFile(folder / "x.tt").read("tinytorch.json")
        archive.writestr("tinytorch.json", text.replace(b"[10]", b"[%d]" % (10 * 4)))
        archive.writestr("memory/0", arange(10).numpy().tobytes())
    with zipfile.ZipFile(foreign := io.BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap()))
    for file in (io.BytesIO(flipped), io.BytesIO(good[:-1]), lying, foreign):
        try:
            print(load(file))
        except RuntimeError as error:
            print(str(error).split(": ")[1])
            # -> Bad CRC-32 for file 'memory/0'
            # -> File is not a zip file
            # -> a tensor lies outside of its memory
            # -> torch.save() wrote a pickle, which is a program, and none is run; write safetensors

    # A save that is interrupted leaves the old file, and nothing else.
    try:
        with replacing(folder / "x.tt") as file:
            file.write(good[:50])
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("still there:", load(folder / "x.tt").sum().item())  # -> still there: 45
    print(sorted(path.name for path in folder.iterdir()))
    # -> ['rows.tt', 'run.tt', 'trap', 'x.tt']
    scratch.cleanup()
