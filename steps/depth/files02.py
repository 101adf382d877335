"""Step files02: What PyTorch's format cannot express

The call of step files01 counts the offset and the strides in elements of one type. NumPy's arrays
count in bytes, so two kinds of tensors do not fit.

A field of a record may begin in the middle of an element. Here each record has 5 bytes:

    bytes     a b b b b a b b b b        field b: float32, at bytes 1 and 6, stride 5

1 / 4 elements is not an offset. Such an array is copied first: the values are right, and only the
memory is no longer shared. The same holds for strides that are negative.

And the same memory may be shown as two types, as float32 and as int32. A storage of PyTorch's
format has one type, so the second tensor would be read with the wrong one. PyTorch refuses this,
and so do we.

The trap: a storage that is shown as one type only is fine, whatever type its owner has.

Changed: Writer.call_of_tensor.
Try: leave the copy out. Which bytes would be saved for the field, and what is wrong with the
reversed array?
"""

import importlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import DType
from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.storage import address_of, memory_of
from tinytorch.serialization.pickling import Name, PersistentId, plain_calls

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


if __name__ == "__main__":
    from tinytorch.ops.creation import arange

    # A field of a record begins in the middle of an element: it is copied.
    writer = Writer()
    records = np.array([(1, 0.5), (2, 1.5)], [("a", np.uint8), ("b", np.float32)])
    print(records["b"].strides, records.nbytes)  # -> (5,) 10
    _, storage, *view = writer.call_of_tensor(wrap(records["b"], cpu))
    print(tuple(storage)[2:], view[:3])  # -> ('0', 'cpu', 2) [0, (2,), (1,)]
    ((_, _, memory, _, _),) = writer.storages.values()
    print(memory.nbytes, "bytes:", memory.tobytes() == np.array([0.5, 1.5], np.float32).tobytes())
    # -> 8 bytes: True
    _, storage, *view = writer.call_of_tensor(wrap(np.arange(3.0)[::-1], cpu))
    print(tuple(storage)[2:], view[:3])  # -> ('1', 'cpu', 3) [0, (3,), (1,)]

    # Two types on one memory. One of them alone can be saved.
    matrix = arange(24.0).reshape(4, 6)
    shown = wrap(matrix.array.view(np.int32), cpu)
    print(tuple(Writer().call_of_tensor(shown)[1])[1:3])  # -> ('torch.IntStorage', '0')
    writer.call_of_tensor(matrix)
    try:
        writer.call_of_tensor(shown)
    except RuntimeError as error:
        print(str(error).split(": ")[1])  # -> tinytorch.float32 and tinytorch.int32
