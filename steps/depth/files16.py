"""Step files16: Loading safetensors, and what the package does not check

The package `safetensors` compares a header with the bytes that follow it. It does not know NumPy. A
shape of 65 ones, or one of (0, 2^62, 2^62), needs no more bytes than there are. NumPy refuses both,
with a message that names neither the tensor nor the file.

A caller wants one error for a file that cannot be read, with the name and the reason, as in step
files09. Here it is the package's own: SafetensorError. Such files come from an attacker, or from a
faulty program.

The bytes of each tensor are one piece of the file. So a tensor is a view of what was read, and its
element type comes from a table, as for PyTorch's format in step files01.

(load and load_file are those of the module safetensors.torch.)

New: load, load_file, KINDS.
Try: give the demo's header the dtype "F8_E4M3", and load file_with([4], numbers[:4]).
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tinytorch.core.device import as_device
from tinytorch.core.dtype import DType, numpy_dtype
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.storage import address_of
from tinytorch.serialization.files import DTYPES, replacing

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# The element types by the names that they have in a file.
KINDS = dict(zip("BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64".split(), DTYPES, strict=True))


def package() -> ModuleType:
    """The package safetensors. ImportError where it is not installed."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "safetensors files need the package safetensors: pip install safetensors"
        ) from error
    return safetensors


def overlapping(tensors: dict[str, Tensor]) -> list[list[str]]:
    """The names of tensors that share memory, in groups. Those that begin first come first, and of
    two that begin at one place, the larger one."""
    areas = []
    for name, value in tensors.items():
        if value.array.size:
            array, start = value.array, address_of(value.array)
            span = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True))
            areas.append((str(value.device), start, -(start + span + array.itemsize), name))
    groups, where, end = [], None, 0
    for device, start, stop, name in sorted(areas):
        if device == where and start < end:
            groups[-1].append(name)
            end = max(end, -stop)
        else:
            groups.append([name])
            where, end = device, -stop
    return [group for group in groups if len(group) > 1]


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """A dict of tensors in the form of a safetensors file. `metadata` are texts of your own.

    Raises:
        ValueError: for what is not a dict of tensors, and for a tensor that is not contiguous.
        RuntimeError: for tensors that share memory.
    """
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, Tensor] but received {type(tensors)}")
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"`{name}` is not a Tensor but {type(value)}")
    if shared := overlapping(tensors):
        raise RuntimeError(
            f"Some tensors share memory, and would not any more after a load: {shared}. "
            "Leave out all names but one, or save copies: clone()"
        )
    for name, value in tensors.items():
        if not value.array.flags.c_contiguous:
            raise ValueError(f"`{name}` is not contiguous: save {name}.contiguous()")
    arrays = {name: value.numpy(force=True) for name, value in tensors.items()}
    return package().numpy.save(arrays, metadata)


def save_file(tensors: dict[str, Tensor], filename: Any, metadata: dict | None = None) -> None:
    """Writes a dict of tensors to a safetensors file, all of it or none. Errors as `save`."""
    with replacing(filename) as file:
        file.write(save(tensors, metadata))


def load(data: bytes, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file, by name.

    Raises:
        safetensors.SafetensorError: for bytes that are not such a file.
        RuntimeError: for an element type that tinytorch does not have.
    """
    device, tensors = as_device(device), {}
    for name, entry in package().deserialize(data):
        if entry["dtype"] not in KINDS:
            raise RuntimeError(f"`{name}` has elements of type {entry['dtype']}: not in tinytorch")
        dtype = numpy_dtype(DType.by_name[KINDS[entry["dtype"]]])
        try:
            array = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
        except ValueError as error:  # more dimensions than NumPy has, or (0, 2^60)
            reason = f"`{name}` cannot have the shape {entry['shape']}: {error}"
            raise package().SafetensorError(reason) from error
        tensors[name] = wrap(device.backend.from_numpy(array, device.index), device)
    return tensors


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors in a safetensors file, by name, on `device`. Errors as `load`."""
    data = Path(filename).read_bytes()
    try:
        return load(data, device)
    except package().SafetensorError as error:
        raise type(error)(f"cannot load {filename}: {error}") from error


if __name__ == "__main__":
    import json
    import tempfile

    def file_with(shape, content=b""):
        """A file of one tensor, by hand."""
        entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, len(content)]}
        text = json.dumps({"weight": entry}).encode()
        return len(text).to_bytes(8, "little") + text + content

    # What NumPy says about a shape that it cannot have. load says which tensor has it.
    numbers = np.arange(6, dtype="<f4").tobytes()
    try:
        np.frombuffer(numbers[:4], "<f4").reshape([1] * 65)
    except ValueError:
        print("NumPy cannot make an array with 65 dimensions")
        # -> NumPy cannot make an array with 65 dimensions

    # The rest needs the package. An error says how to get it where it is not there.
    try:
        package()
    except ImportError as error:
        print(error)
        raise SystemExit from None
    print(load(file_with([2, 3], numbers))["weight"].tolist())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        for content in (file_with([1] * 65, numbers[:4]), file_with([0, 2**62, 2**62]), b"no file"):
            path.write_bytes(content)
            try:
                load_file(path)
            except package().SafetensorError as error:
                print(str(error).replace(folder, "FOLDER"))
