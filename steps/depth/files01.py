"""Step files01: Writing a tensor as a view of a storage

Step 78b read PyTorch's files: memories, and tensors that are views of them. This run also writes
them, with the machine of the run pickle. A tensor is a call that makes a view of a storage, with
offset, size, strides and requires_grad. (The empty OrderedDict in the call stands for hooks.) The
storage is a persistent id:

    ("storage", FloatStorage, "0", "cpu", 24)        its type, key, device and number of elements

The price: to save a row of a large matrix is to save the whole matrix. PyTorch does the same. Save
row.clone() instead.

The trap: a storage is known by the id of the array that owns the memory. So the Writer keeps this
array: an array that dies gives its id to another.

New: Writer, storage_names. Moved: steps pickle01 to pickle11, to serialization/pickling.py.
Try: add "c": matrix.clone() to the demo's value, and count the storages.
"""

import importlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.storage import address_of, memory_of
from tinytorch.serialization.pickling import Name, PersistentId, Pickler, plain_calls

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
        new = str(len(self.storages)), tensor.dtype, memory, tensor.device, owner
        key, dtype, *_ = self.storages.setdefault(id(owner), new)
        count, strides = memory.size // size, wrap(array, tensor.device).stride()
        storage = "storage", Name(storage_names[dtype.name]), key, str(tensor.device), count
        view = start // size, tuple(array.shape), strides, tensor.requires_grad, OrderedDict()
        return "torch._utils._rebuild_tensor_v2", PersistentId(storage), *view

    def call_of_parameter(self, p: Parameter) -> tuple:
        return "torch._utils._rebuild_parameter", p.detach(), p.requires_grad, OrderedDict()


if __name__ == "__main__":
    from pickletools import genops

    from tinytorch.ops.creation import arange

    matrix = arange(24.0).reshape(4, 6)
    value = {"matrix": matrix, "row": matrix[1], "turned": matrix.T, "p": Parameter(arange(3.0))}
    writer = Writer()
    pickler = Pickler(writer.calls)
    pickler.write({**value, "size": Size([2, 3]), "device": cpu}, "the value")

    # One storage for three tensors: 24 numbers of 4 bytes.
    for key, dtype, memory, device, _ in writer.storages.values():
        print(key, dtype, memory.nbytes, device)
    # -> 0 tinytorch.float32 96 cpu
    # -> 1 tinytorch.float32 12 cpu

    # What the pickle calls, and what it says of the storages.
    names = [arg for opcode, arg, _ in genops(pickler.program + b".") if opcode.name == "GLOBAL"]
    print(sorted(set(names))[1:4])  # -> ['torch FloatStorage', 'torch Size', 'torch device']
    print(sorted(set(names))[4:])
    # -> ['torch._utils _rebuild_parameter', 'torch._utils _rebuild_tensor_v2']
    _, storage, *view = writer.call_of_tensor(value["turned"])
    print(tuple(storage))  # -> ('storage', 'torch.FloatStorage', '0', 'cpu', 24)
    print(view[:3])  # -> [0, (6, 4), (1, 6)]
    print(writer.call_of_tensor(value["row"])[2:5])  # -> (6, (6,), (1,))
