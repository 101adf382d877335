"""Step 78b: PyTorch's files: memories, and views of them

No other program reads the files of step 78a. And they forget something: a column of a matrix is a
view of its memory (step 67a). Saved by 78a, matrix and column have two memories, and after loading
a write to one does not reach the other. The same happens to a table that is used for reading and
for writing (step 59a).

A file of PyTorch keeps the memories apart from the tensors. It is a zip archive:

    archive/data.pkl     a pickle: dicts, texts, numbers, and for each tensor a call
                         rebuild(memory "0", offset 1, size (3,), stride (4,))
    archive/data/0       the bytes of a memory, as they lie there

How does a pickle say "memory 0", which is not in it? It writes an id, and the machine asks
persistent_load what it stands for. Ours reads the bytes once for each key, and keeps them in
`memories`. So two tensors with the same id are views of one array again.

The names in a file are torch._utils._rebuild_tensor_v2 and torch.FloatStorage (the type of the
elements). They are looked up in our table, so PyTorch need not be installed.

The trap: offset and strides come from the file, and as_strided looks at no bound. A file that says
stride 1,000,000 would show us other memory of our process, or end it. So rebuild computes the last
place that is reached, and compares.

The save of the demo is the finished one, of tinytorch or of PyTorch: its format is this one. A view
is saved with its whole memory: clone() what is small.

Changed: rebuild, allowed, Reader, load. Gone: Writer, save.
Try: let persistent_load read the bytes each time. Which line of the demo changes?
In depth: files01 to files16, mnist01 to mnist09.
"""

import pathlib
import pickle
import tempfile
import zipfile
from collections import OrderedDict

import numpy as np

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.tensor import from_numpy
from tinytorch.ops.random import manual_seed, randn
from tinytorch.serialization.files import save


def rebuild(memory, offset, size, stride, *_):
    """A view of a memory. Raises UnpicklingError where it would reach beyond its end. What else
    a file says of a tensor (requires_grad, hooks) is left out."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if min(offset, *size, *stride, 0) < 0 or (0 not in size and last >= len(memory)):
        raise pickle.UnpicklingError("a tensor is larger than its memory")
    strides = [step * memory.itemsize for step in stride]
    return from_numpy(np.lib.stride_tricks.as_strided(memory[offset:], size, strides))


allowed = {  # all that a file may call
    "torch._utils._rebuild_tensor_v2": rebuild,
    "torch.FloatStorage": np.float32,
    "torch.LongStorage": np.int64,
    "collections.OrderedDict": OrderedDict,
}


class Reader(pickle.Unpickler):
    """Reads the pickle in an archive, and can call nothing but what is allowed."""

    def __init__(self, archive):
        self.archive, self.memories = archive, {}
        self.top = archive.namelist()[0].partition("/")[0]  # "archive", or another name
        super().__init__(archive.open(f"{self.top}/data.pkl"))

    def persistent_load(self, pid):
        """The memory that an id stands for."""
        _, dtype, key, _, _ = pid  # "storage", dtype, key, device, number of elements
        if key not in self.memories:
            data = self.archive.read(f"{self.top}/data/{key}")
            self.memories[key] = np.frombuffer(bytearray(data), dtype)  # bytes are read-only
        return self.memories[key]

    def find_class(self, module, name):
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"a file may not use {module}.{name}")
        return allowed[f"{module}.{name}"]


def load(f):
    """Read a file of PyTorch. No file can run a program."""
    with zipfile.ZipFile(f) as archive:
        return Reader(archive).load()


if __name__ == "__main__":
    manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "net.pt"
        table = randn(3, 4)
        save({"table": table, "column": table[:, 1], "epoch": 7}, file)
        loaded = load(file)
        print((loaded["table"] == table).all().item(), loaded["epoch"])  # -> True 7
        loaded["table"][0, 1] = 100.0
        print(loaded["column"].tolist())
        # -> [100.0, 0.2468796968460083, -0.7311522960662842]

        # A row of a large table takes the whole table along.
        rows = randn(1000, 250)
        for kept in (rows[0], rows[0].clone()):
            save(kept, file)
            print(tuple(load(file).shape), file.stat().st_size > 1_000_000)
            # -> (250,) True
            # -> (250,) False

        # A damaged file: its memory is cut off.
        with zipfile.ZipFile(file) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data[:400] if name.endswith("data/0") else data)
        try:
            load(file)
        except (pickle.UnpicklingError, RuntimeError):
            print("refused")  # -> refused
