"""Step files13: Writing any object

A program of three lines saves a whole network: torch.save(model, "model.pt"). Ours answers "cannot
save a ...Sequential", and asks for a state_dict(). The same happens to a np.float64, which a loss
may have become on its way through NumPy.

Python can save any object, because each one says how to make it again. x.__reduce_ex__(2) returns

    a function, its arguments, the state (attributes), items of a list, items of a dict

and a function or a class is saved by its name, and looked up again when the file is loaded.
ObjectPickler writes these in the order in which the machine of step pickle01 needs them:

    function, arguments, REDUCE     the object, which gets its number in the memo
    items, APPENDS; pairs, SETITEMS; state, BUILD      what may contain the object itself

A class inside a class is written as getattr(Outer, "Inner"). A lambda has no name in any module, so
it cannot be saved.

The trap: the file holds the names of classes, and not their code. Rename the class, or an attribute
that its forward uses, and the file is of no use. A state_dict has only the numbers.

PyTorch does the same with Python's own pickle. It reads NumPy's values from such a file, and not
our modules, because it does not have their classes. Our load cannot read either: see step files14.

Changed: save. New: ObjectPickler.
Try: leave out `self.remember(value)`, and save the tree.
"""

import contextlib
import copyreg
import importlib
import io
import os
import pickle
import shutil
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
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
    atoms,
    plain_calls,
    plain_names,
    push_name,
    push_str,
)

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
STORAGES = "Bool Byte Char Short Int Long Half BFloat16 Float Double".split()
# PyTorch's class of storages for each element type.
storage_names = {d: f"torch.{s}Storage" for d, s in zip(DTYPES, STORAGES, strict=True)}


class ObjectPickler(Pickler):
    """A Pickler that writes any object as Python does: as the call that makes it, and its items and
    attributes after it, which may contain the object itself.

    Raises:
        TypeError: for what Python cannot pickle, and for functions that are not in a module.
    """

    def write(self, value: Any, path: str) -> None:
        kind = type(value)
        known = kind in atoms or kind in self.calls or kind in (list, tuple, dict, PersistentId)
        if known or id(value) in self.memo:
            super().write(value, path)
        elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            self.write_name(value.__module__, value.__qualname__)
        elif isinstance(reduced := value.__reduce_ex__(2), str):
            self.write_name(kind.__module__, reduced)
        else:
            self.write_object(value, reduced, path)

    def write_name(self, module: str, name: str) -> None:
        """A class or a function by its name, or as an attribute of the class that it is in."""
        if "<" in name:
            raise TypeError(f"cannot save {name}, which has no name in a module")
        outer, _, name = name.rpartition(".")
        if not outer:
            self.program += push_name(f"{module}.{name}")
            return
        self.program += push_name("builtins.getattr") + pickle.MARK
        self.write_name(module, outer)
        self.program += push_str(name) + pickle.TUPLE + pickle.REDUCE

    def write_object(self, value: Any, reduced: tuple, path: str) -> None:
        function, args, state, items, pairs = (*reduced, None, None, None)[:5]
        opcode = pickle.REDUCE
        if function is copyreg.__newobj__:  # this opcode calls it, so that the class is named first
            (function, *args), opcode = args, pickle.NEWOBJ
        self.write(function, path)
        self.write(tuple(args), path)
        self.program += opcode
        self.remember(value)
        listed, paired = [*(items or ())], [part for pair in pairs or () for part in pair]
        for values, opcode in ((listed, pickle.APPENDS), (paired, pickle.SETITEMS)):
            if values:  # PyTorch's machine accepts these opcodes only after a list and a dict
                self.write_items(values, path, opcode)
        if state is not None:
            self.write(state, path)
            self.program += pickle.BUILD


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
    Whole modules, NumPy's values and other objects can be saved too.

    Tensors that share memory share it again when they are loaded. The file holds all memory that a
    tensor is a view of: save `x[0].clone()` to save no more than a row.

    Args:
        f: a path, or a file opened for writing in binary mode. A file that is at the path stays as
            it is until the new one is complete.
        pickle_module, pickle_protocol: how PyTorch writes. Here they make no difference.
    Raises:
        TypeError: for a value that cannot be pickled, such as a lambda or a lock.
        RuntimeError: for tensors that show the same memory as different types.
        ValueError: for integers of more than 255 bytes, and for a value that is nested too deeply.
    """
    writer = Writer()
    pickler = ObjectPickler(writer.calls)
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
    import threading

    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear

    def saved(value):
        """What Python's own machine makes of the pickle, which may hold no tensors here."""
        file = io.BytesIO()
        save(value, file)
        return pickle.loads(zipfile.ZipFile(file).read("archive/data.pkl"))

    # The five things that make an object.
    function, args, *_ = np.float64(0.25).__reduce_ex__(2)
    print(function.__module__, function.__name__, args)
    # -> numpy._core.multiarray scalar (dtype('float64'), b'\x00\x00\x00\x00\x00\x00\xd0?')
    print(saved({"loss": np.float64(0.25), "curve": np.arange(3)}))
    # -> {'loss': np.float64(0.25), 'curve': array([0, 1, 2])}

    # An object that contains itself, a class inside a class, and one with items and attributes.
    class Tree(list):
        class Leaf:
            pass

    globals()["Tree"] = Tree
    Tree.__qualname__, Tree.Leaf.__qualname__ = "Tree", "Tree.Leaf"
    tree = Tree([1, 2])
    tree.append(tree)
    tree.leaf, tree.end = Tree.Leaf, ...
    tree = saved(tree)
    print(tree[:2], tree[2] is tree, tree.leaf is Tree.Leaf, tree.end)
    # -> [1, 2] True True Ellipsis

    # A whole network can be written, with its tensors.
    file = io.BytesIO()
    save(Sequential(Linear(2, 3), ReLU()), file)
    try:
        load(file)
    except pickle.UnpicklingError as error:
        print(str(error).partition(", which")[0])
    # -> cannot load the file: the pickle needs tinytorch.nn.modules.container.Sequential

    for value in ([lambda x: x], {"lock": threading.Lock()}):
        try:
            save(value, io.BytesIO())
        except TypeError as error:
            print(error)
    # -> cannot save <lambda>, which has no name in a module
    # -> cannot pickle '_thread.lock' object
