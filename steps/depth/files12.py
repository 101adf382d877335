"""Step files12: Atomic saving: unnamed files, owners, closed folders

Step files11 writes a new file and gives it the old one's name. Four things go wrong with that.

    killed             A process that is killed with kill -9 cleans nothing up: beside run.pt lies
                       run.pt.1f2e3d4c.tmp, as large as run.pt, and one more for every such night.
    another owner      An administrator saves over your run.pt. The new file is not yours any more.
    a closed folder    You may write run.pt, but create no file beside it.
    a long name        250 letters are allowed, and ".1f2e3d4c.tmp" makes 263 of them.

Linux has files without a name: os.open(folder, O_TMPFILE). The file is in no folder, and the system
removes it with the process that has it open, however that ends. When all of it is written, os.link
gives it a name and os.replace puts it in place. Only a kill between these two leaves it there: in a
trial 1 of 100 kills did, and 82 of 100 with step files11. Where there are no such files, or no
/proc to find them in, the new file has a short name from the start.

The new file gets the owner of the old one. A program that may not do that, or may not create a file
in this folder, writes into the old one, as PyTorch always does. That is not safe against a crash,
but the value is saved.

Changed: replacing. New: replaceable.
Try: take out the os.chown, and as root save over a file of another user.
"""

import contextlib
import importlib
import os
import pickle
import shutil
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
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
    """Reads the members of an archive, and makes the tensors that the pickle asks for.

    What the file says is checked before anything is read or allocated.
    """

    def __init__(self, file: BinaryIO):
        file.seek(0)
        if file.read(2) == pickle.PROTO + b"\2":
            raise ValueError(
                "it is a bare pickle, as PyTorch wrote before version 1.6; with PyTorch, "
                "torch.save(torch.load(path), path) turns it into the present format"
            )
        self.archive = zipfile.ZipFile(file)
        members = self.archive.infolist()
        if any(info.compress_type or info.file_size != info.compress_size for info in members):
            raise ValueError("it has compressed members, which torch.save() does not write")
        if sum(info.file_size for info in members) > file.seek(0, os.SEEK_END):
            raise ValueError("it has members that are longer than the file, or overlap")
        if any(info.header_offset < 0 for info in members):
            raise ValueError("it has a member that begins before the file")
        self.folder = members[0].filename.partition("/")[0]
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
        match name:
            case ("storage", DType() as dtype, str() as key, str() as location, int() as count):
                pass
            case _:
                raise ValueError("it has a persistent id that does not name a storage")
        if key not in self.storages:
            info = self.archive.getinfo(f"{self.folder}/data/{key}")
            if info.file_size != count * dtype.itemsize:
                raise ValueError(
                    f"a storage has {info.file_size} bytes for {count} elements of {dtype}"
                )
            memory = np.empty(count, numpy_dtype(dtype))
            content, piece = memory.view(np.uint8), 1 << 20
            with self.archive.open(info) as member:
                for start in range(0, content.size, piece):  # each is copied on its way
                    member.readinto(content[start : start + piece])
            if self.order != sys.byteorder:
                memory.view(f"u{dtype.itemsize}").byteswap(inplace=True)
            self.storages[key] = UntypedStorage(memory, cpu), location
        storage = self.storages[key][0]
        if storage.memory.dtype != numpy_dtype(dtype) or len(storage) != count:
            raise ValueError(f"it describes storage {key} in two ways")
        return storage

    def rebuild_tensor(self, storage, offset, size, stride, requires_grad, hooks) -> Tensor:
        """A view of a storage. The table of names has the types of the arguments."""
        if any(type(n) is not int or n < 0 for n in (offset, *size, *stride)):
            raise ValueError("it has a tensor whose size, stride or offset is not a natural number")
        steps = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
        end = offset + (0 if 0 in size else sum(steps) + 1)
        if end > len(storage):
            raise ValueError("it has a tensor that reaches beyond its storage")
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


# What comes up in a file that is damaged: ValueError from here; the others from zipfile, from the
# stack machine and from NumPy. (RuntimeError is raised for encryption, and for recursion.)
DAMAGE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, struct.error),
)


def replaceable(target: Path) -> bool:
    """Whether a new file can take the place of `target`, and belong to the owner of the old one."""
    if not target.exists():
        return os.access(target.parent, os.W_OK)
    ours = os.geteuid() in (0, target.stat().st_uid) and os.access(target, os.W_OK)
    return target.is_file() and ours and os.access(target.parent, os.W_OK)


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when all of it is on the disk, and only then.

    What cannot be replaced is written to directly: what is not a regular file, such as a FIFO or
    /dev/null, a file of another owner or that is read-only, and a file in a folder that is not ours
    to write.

    Raises:
        PermissionError: the file is not ours to write either.
    """
    target = Path(path).resolve()  # of a link: what it points to
    if not replaceable(target):
        with open(target, "wb") as file:
            yield file
        return
    unfinished = target.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        try:  # Linux has files without a name. They disappear with a process that is killed.
            os.stat("/proc/self/fd")  # only from there can they be given a name later
            flags = os.O_TMPFILE | os.O_WRONLY
            # In one call: no interrupt comes between the descriptor and the file that closes it.
            (opened,) = map(open, map(os.open, [target.parent], [flags], [0o666]), ["wb"])
        except (AttributeError, OSError):
            opened = open(unfinished, "xb")
        with opened as file:
            number = file.fileno()
            if target.exists():
                shutil.copymode(target, number)
                with contextlib.suppress(PermissionError):  # of a group that we are not in
                    os.chown(number, target.stat().st_uid, target.stat().st_gid)
            yield file
            file.flush()
            os.fsync(number)
            if not unfinished.exists():  # with a folder given, link() takes what the path points to
                os.link(f"/proc/self/fd/{number}", unfinished, src_dir_fd=number)
        os.replace(unfinished, target)
    except BaseException:  # of any kind: leave nothing behind, and pass it on
        unfinished.unlink(missing_ok=True)
        raise


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
        f: a path, or a file opened for writing in binary mode. A file that is at the path stays as
            it is until the new one is complete.
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
    opened = replacing(f) if isinstance(f, (str, os.PathLike)) else contextlib.nullcontext(f)
    with opened as file, zipfile.ZipFile(file, "w") as archive:
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
        pickle.UnpicklingError: for a file that is damaged, incomplete or of another format, and for
            one that holds something else than `save` writes.
        RuntimeError: for a tensor of a device that is not there.
    """
    is_path = isinstance(f, (str, os.PathLike))
    with open(f, "rb") if is_path else contextlib.nullcontext(f) as file:
        try:
            reader = Reader(file)
            value = reader.run()
        except DAMAGE as error:
            name = os.fspath(f) if is_path else "the file"
            raise pickle.UnpicklingError(f"cannot load {name}: {error}") from error
    reader.place(map_location)
    return value


if __name__ == "__main__":
    import tempfile

    from tinytorch.ops.creation import arange

    scratch = tempfile.TemporaryDirectory()
    folder = Path(scratch.name)
    path = folder / "run.pt"

    def left(file):
        """Writes half of it. What is in the folder now is what a kill at this moment leaves."""
        file.write(b"half of a checkpoint")
        file.flush()
        return sorted(name if name == "run.pt" else "a file more" for name in os.listdir(folder))

    save(arange(10), path)
    with open(folder / "run.pt.1f2e3d4c.tmp", "xb") as file:  # step files11
        print(left(file))  # -> ['a file more', 'run.pt']
    (folder / "run.pt.1f2e3d4c.tmp").unlink()
    if hasattr(os, "O_TMPFILE"):
        with replacing(path) as file:
            print(left(file))  # -> ['run.pt']
    vars(os).pop("O_TMPFILE", None)  # from here on as on other systems
    try:
        with replacing(path) as file:
            print(left(file))  # -> ['a file more', 'run.pt']
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        print(os.listdir(folder), os.stat(path).st_size)  # -> ['run.pt'] 20

    # Owner and rights. `same` is the same file, and not a new one of the same name.
    before = path.stat()
    path.chmod(0o640)
    save(arange(10), path)
    after, same = path.stat(), path.stat().st_ino == before.st_ino
    print(after.st_uid == before.st_uid, oct(after.st_mode)[-3:], same)  # -> True 640 False
    user = os.geteuid
    os.geteuid = lambda: before.st_uid + 1  # as for another user, who may write the file
    print(replaceable(path))  # -> False
    inode = path.stat().st_ino
    save(arange(4), path)
    print(path.stat().st_ino == inode, load(path))  # -> True tensor([0, 1, 2, 3])
    os.geteuid = user

    # A long name, and a folder that is not there: the error of the system names our file.
    save(arange(3), folder / ("n" * 250))
    print(len(os.listdir(folder)))  # -> 2
    try:
        save(arange(3), folder / "missing" / "run.pt")
    except FileNotFoundError as error:
        print(Path(error.filename).name)  # -> run.pt
    scratch.cleanup()
