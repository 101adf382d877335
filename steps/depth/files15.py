"""Step files15: safetensors, a second format

Most published weights come in a format other than PyTorch's own. It was made because reading a
pickle usually meant running it, and it is the simplest of all:

    8 bytes      how long the header is
    the header   JSON: {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    the rest     the bytes of all tensors, one after the other, without gaps

The demo writes such a file by hand and takes it apart again. There are names, each with a tensor,
and nothing else: no numbers, no tuples. A state_dict() is just that.

Twenty lines of Python would do. But a file may lie, and this one comes from strangers: a header of
2^60 bytes, tensors that overlap, a shape that needs more bytes than there are. The package
`safetensors` checks all that, and is well maintained. We use it:
pip install safetensors.

The trap: the format has no views. Two tied weights would become two after a load and, without any
warning, learn different things. So save_file refuses tensors that share memory, and those whose
elements do not lie one after the other. PyTorch's format of step files01 has no such limits.

(save and save_file are those of the module safetensors.torch.)

Moved: steps files01 to files13, to serialization/files.py. New: save, save_file, overlapping,
package.
Try: save the state_dict() of two layers that share their weight, and read the error.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.ops.storage import address_of
from tinytorch.serialization.files import replacing

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import json
    import tempfile

    from tinytorch.ops.creation import arange

    # A file by hand: the length of the header, the header, the bytes.
    header = {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    text = json.dumps(header).encode()
    numbers = np.arange(6, dtype="<f4")
    file = len(text).to_bytes(8, "little") + text + numbers.tobytes()

    # Taken apart by hand.
    length = int.from_bytes(file[:8], "little")
    for name, entry in json.loads(file[8 : 8 + length]).items():
        first, end = (8 + length + offset for offset in entry["data_offsets"])
        found = np.frombuffer(file[first:end], "<f4").reshape(entry["shape"])
        print(name, found.tolist())  # -> weight [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]

    # What save refuses, whether the package is there or not.
    table = arange(6.0).reshape(2, 3)
    shared = {"table": table, "row": table[1], "other": arange(2.0)}
    for tensors in (shared, {"turned": table.T}, {"list": [1.0]}, [table]):
        try:
            save(tensors)
        except (RuntimeError, ValueError) as error:
            print(f"{type(error).__name__}: {str(error).split(': ')[0]}")
    # -> RuntimeError: Some tensors share memory, and would not any more after a load
    # -> ValueError: `turned` is not contiguous
    # -> ValueError: `list` is not a Tensor but <class 'list'>
    # -> ValueError: Expected a dict of [str, Tensor] but received <class 'list'>

    # The rest needs the package. An error says how to get it where it is not there.
    try:
        print("the same file:", save({"weight": arange(6.0).reshape(2, 3)})[-24:] == file[-24:])
    except ImportError as error:
        print(error)
        raise SystemExit from None
    with tempfile.TemporaryDirectory() as folder:
        save_file({"a": table}, Path(folder, "table"))
        print("and on the disk:", Path(folder, "table").read_bytes() == save({"a": table}))
