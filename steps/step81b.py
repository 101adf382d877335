"""Step 81b: Files and names that PyTorch knows

save and load of step 81a are safe, but only tinytorch reads their files. Most published weights
come in another format, safetensors, which was made for the same reason and is just as simple:

    8 bytes      how long the header is
    the header   JSON: {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    the rest     the bytes of all tensors, one after the other, without gaps

The demo writes one by hand and takes it apart by hand. Around the tensors there are no other
values, no tuples or numbers, just names, each with a tensor: exactly what a state_dict is. So a
model trained in PyTorch loads here, and the other way round; the layers use PyTorch's names for
their parameters.

Twenty lines of Python would do. But a file may lie, and this one comes from strangers: a header of
2^60 bytes, tensors that overlap, a shape that needs more bytes than there are. The package
`safetensors` checks all that, and is well maintained. We use it: pip install
'tinytorch[safetensors]'.

What the format does not have is sharing. Two tied weights would become two separate ones on loading
and, without any warning, learn on their own. So save_file refuses tensors that share memory, and
those whose elements do not lie one after the other: call contiguous(). save_model knows the module.
It writes a tied weight once and notes its other name; load_model, given a module in which the
weights are tied, finds everything.

(save_file, load_file, save_model and load_model are those of the module safetensors.torch.)

Old programs come with old names. In PyTorch's first years types and places stood in one word,
FloatTensor, and a tensor had to be put into a Variable before it could be differentiated.
FloatTensor(2, 3) is a new tensor; but isinstance(x, FloatTensor) asks for a type. An object can
answer to both if it has `__call__` and `__instancecheck__`.

New: save, save_file, load, load_file, save_model, load_model; overlapping, package; FloatTensor,
LongTensor, Tensor.type, variable. Moved: step 81a, to tinytorch/serialization.py.
Try: save the state_dict of the demo's tied() network with save_file, and read the error.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tinytorch.core import dtype as types
from tinytorch.core.device import as_device, cpu
from tinytorch.core.dtype import DType, numpy_dtype
from tinytorch.core.tensor import Size, Tensor, tensor, tensor_method, wrap
from tinytorch.nn.module import Module
from tinytorch.ops.conversion import to
from tinytorch.ops.creation import empty
from tinytorch.ops.storage import address_of
from tinytorch.serialization import reach, replacing

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
# The element types by the names that they have in a file.
KINDS = dict(zip("BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64".split(), DTYPES, strict=True))


def package() -> ModuleType:
    """The package safetensors. ImportError where it is not installed."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "safetensors files need the package safetensors: pip install 'tinytorch[safetensors]'"
        ) from error
    return safetensors


def overlapping(tensors: dict[str, Tensor]) -> list[list[str]]:
    """The names of tensors that share memory, in groups; in each the one that begins first, and of
    those the largest, and of those the first by name, comes first."""
    areas = []
    for name, value in tensors.items():
        if value.array.size:
            start, array = address_of(value.array), value.array
            stop = start + reach(array.shape, array.strides, array.itemsize)
            areas.append((str(value.device), start, -stop, name))
    groups, where, end = [], None, 0
    for device, start, stop, name in sorted(areas):
        if device == where and start < end:
            groups[-1].append(name)
        else:
            groups.append([name])
        where, end = device, max(end if device == where else 0, -stop)
    return [group for group in groups if len(group) > 1]


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """A dict of tensors in the form of a safetensors file. `metadata` are texts of your own.

    ValueError for what is no dict of tensors, and for one that is not contiguous; RuntimeError for
    tensors that share memory.
    """
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, Tensor] but received {type(tensors)}")
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"`{name}` is no Tensor but {type(value)}")
    if shared := overlapping(tensors):
        raise RuntimeError(
            f"Some tensors share memory, and would not any more after a load: {shared}. "
            "Save a module with tied parameters by save_model, or others as copies: clone()"
        )
    for name, value in tensors.items():
        if not value.array.flags.c_contiguous:
            raise ValueError(f"`{name}` is not contiguous: save {name}.contiguous()")
    arrays = {name: value.numpy(force=True) for name, value in tensors.items()}
    return package().numpy.save(arrays, metadata)


def save_file(
    tensors: dict[str, Tensor],
    filename: str | os.PathLike,
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes a dict of tensors to a safetensors file, all of it or none. Errors as `save`."""
    with replacing(filename) as file:
        file.write(save(tensors, metadata))


def load(data: bytes, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file, by name.

    safetensors.SafetensorError where it is none, RuntimeError for an element type that is not here.
    """
    device, tensors = as_device(device), {}
    for name, entry in package().deserialize(data):
        if entry["dtype"] not in KINDS:
            raise RuntimeError(f"`{name}` has elements of type {entry['dtype']}: not in tinytorch")
        dtype = numpy_dtype(DType.by_name[KINDS[entry["dtype"]]])
        array = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
        tensors[name] = wrap(device.backend.from_numpy(array, device.index), device)
    return tensors


def load_file(filename: str | os.PathLike, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors in a safetensors file, by name, on `device`. Errors as `load`."""
    return load(Path(filename).read_bytes(), device)


def save_model(
    model: Module,
    filename: str | os.PathLike,
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Writes the state_dict of a module. Of tensors that share memory it writes one, which has to
    contain the others (else RuntimeError), and notes in the metadata whose place it takes."""
    state, notes = model.state_dict(), dict(metadata or {})
    for first, *others in overlapping(state):
        if state[first].untyped_storage().nbytes() > state[first].nbytes:
            raise RuntimeError(f"`{first}` and {others} share memory, and none has all of it")
        for name in others:
            notes.setdefault(name, first)
            del state[name]
    if force_contiguous:
        state = {name: value.contiguous() for name, value in state.items()}
    save_file(dict(state), filename, notes or None)


def load_model(
    model: Module, filename: str | os.PathLike, strict: bool = True, device: Any = "cpu"
) -> tuple[list[str], list[str]]:
    """Reads what save_model wrote into a module: (missing names, unexpected names).

    RuntimeError where there are such, unless `strict` is False. A name is not missing where a
    tensor that shares its memory was in the file.
    """
    state = load_file(filename, device)
    missing, unexpected = map(list, model.load_state_dict(state, strict=False))
    for group in overlapping(model.state_dict()):
        found = [name for name in group if name in state]
        unexpected += found[1:]
        missing = [name for name in missing if not found or name not in group]
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}: missing key(s) "
            f"{sorted(missing)}, unexpected key(s) {sorted(unexpected)}"
        )
    return missing, unexpected


class TypedTensor:
    """FloatTensor and LongTensor, which older programs use as if they were classes.

    FloatTensor(2, 3) is a new tensor of that shape on the CPU, FloatTensor([1, 2]) one of these
    elements, and isinstance(x, FloatTensor) asks for the element type of x.
    """

    def __init__(self, dtype: types.DType):
        self.dtype = dtype

    def __call__(self, *data: Any) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return tensor(data[0], dtype=self.dtype)
        return empty(*data or (0,), dtype=self.dtype)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype and x.device is cpu


FloatTensor = TypedTensor(types.float32)
LongTensor = TypedTensor(types.int64)


@tensor_method("type")
def type_of(self: Tensor, dtype: Any, non_blocking: bool = False) -> Tensor:
    """The tensor with another element type, given as a dtype or as FloatTensor or LongTensor."""
    return to(self, dtype=getattr(dtype, "dtype", dtype), non_blocking=non_blocking)


def variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """autograd.Variable, which Tensor has replaced: a new leaf that shares the memory of `data`."""
    return data.detach().requires_grad_(requires_grad)


if __name__ == "__main__":
    import json
    import tempfile

    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.creation import arange
    from tinytorch.ops.random import randn

    # As it was written in 2017.
    w = variable(FloatTensor([3.0, 2.0]), requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    print(w.grad.tolist())  # -> [6.0, 4.0]
    labels = w.detach().type(LongTensor)
    print(isinstance(labels, LongTensor), labels.tolist())  # -> True [3, 2]

    # A file by hand: the length of the header, the header, the bytes.
    header = {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    text = json.dumps(header).encode()
    numbers = np.arange(6, dtype="<f4")
    file = len(text).to_bytes(8, "little") + text + numbers.tobytes()

    # And by hand taken apart.
    length = int.from_bytes(file[:8], "little")
    for name, entry in json.loads(file[8 : 8 + length]).items():
        first, end = (8 + length + offset for offset in entry["data_offsets"])
        found = np.frombuffer(file[first:end], "<f4").reshape(entry["shape"])
        print(name, found.tolist())  # -> weight [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]

    # What save refuses, whether the package is there or not.
    table = arange(6.0).reshape(2, 3)
    for tensors in ({"table": table, "row": table[1]}, {"turned": table.T}, {"list": [1.0]}):
        try:
            save(tensors)
        except (RuntimeError, ValueError) as error:
            print(f"{type(error).__name__}: {str(error).split(':')[0]}")
    # -> RuntimeError: Some tensors share memory, and would not any more after a load
    # -> ValueError: `turned` is not contiguous
    # -> ValueError: `list` is no Tensor but <class 'list'>

    # The rest needs the package. An error says how to get it where it is not there.
    try:
        print("read by the package:", load(file)["weight"].tolist())
    except ImportError as error:
        print(error)
        raise SystemExit from None

    # Tied weights: one of the two is in the file, and both are there after a load.
    def tied():
        net = Sequential(Linear(3, 3), Linear(3, 3))
        net[1].weight = net[0].weight
        return net

    one, other = tied(), tied()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        save_model(one, path)
        print("in the file:", sorted(load_file(path)))
        print("missing and unexpected:", load_model(other, path))
    x = randn(2, 3)
    print("the same network:", bool((one(x) == other(x)).all()))
