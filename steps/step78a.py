"""Step 78a: A pickle is a program

Somebody sends you a network that has learned for a week. load of step 48b says: only files that you
trust. Why? Because a pickle is not a list of numbers but a program for a small machine, and two of
its instructions are dangerous:

    c  "os system"        look up a name in any module of Python
    R                     call what was looked up, with arguments from the file

So loading can call any function. The file of the demo calls print. It could as well delete your
files.

A checkpoint needs none of this: dicts, lists, numbers, texts and tensors. pickle asks the method
find_class for each name, so a Reader that answers from a table is closed: what is not in the table
does not exist for it. The table should be short (OrderedDict is the type of a state_dict), and a
tensor pickled by itself would need seven names of NumPy and of the package. So the Writer writes it
as one call, rebuild(bytes, type, shape).
(pickle asks reducer_override before anything else; NotImplemented means: as usual.)

The trap: getattr, eval, or a class whose __init__ opens a file would open the door again. And
rebuild gets its arguments from the file, so it must be safe for all of them: frombuffer refuses a
type "O", and a shape that does not fit.

PyTorch: torch.load(weights_only=True), the default since 2.6, is such a closed reader, with a table
of its own. Both raise pickle.UnpicklingError.

Changed: save, load. New: rebuild, Writer, Reader.
Try: put "print": print into the table, and load the trap again.
In depth: pickle01 to pickle11.
"""

import pathlib
import pickle
import tempfile
from collections import OrderedDict

import numpy as np

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed


def rebuild(data, dtype, shape):
    """The tensor with these bytes."""
    return tensor(np.frombuffer(data, dtype).reshape(shape))


allowed = {"rebuild": rebuild, "OrderedDict": OrderedDict}  # all that a file may call


class Writer(pickle.Pickler):
    """Writes a tensor as a call of rebuild."""

    def reducer_override(self, obj):
        if isinstance(obj, Tensor):
            array = obj.numpy()
            return rebuild, (array.tobytes(), array.dtype.str, array.shape)
        return NotImplemented


class Reader(pickle.Unpickler):
    """Reads what Writer writes, and can call nothing else."""

    def find_class(self, module, name):
        if name not in allowed:
            raise pickle.UnpicklingError(f"a file may not use {module}.{name}")
        return allowed[name]


def save(obj, f):
    """Write tensors and numbers, in dicts and lists, to the file f."""
    with open(f, "wb") as file:
        Writer(file).dump(obj)


def load(f):
    """Read what save has written. No file can run a program."""
    with open(f, "rb") as file:
        return Reader(file).load()


if __name__ == "__main__":

    class Trap:
        """An object whose pickle is a call."""

        def __reduce__(self):
            return print, ("a file has called print",)

    trap = pickle.dumps({"weight": Trap()}, protocol=2)  # the form that has c and R
    pickle.loads(trap)  # -> a file has called print

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "trap.pt").write_bytes(trap)
        try:
            load(path / "trap.pt")
        except pickle.UnpicklingError:
            print("load has refused it")  # -> load has refused it

        manual_seed(0)
        net, other = Linear(3, 2), Linear(3, 2)
        save({"net": net.state_dict(), "epoch": 7, "losses": [0.5, 0.25]}, path / "net.pt")
        loaded = load(path / "net.pt")
        other.load_state_dict(loaded["net"])
        print((other.weight == net.weight).all().item(), loaded["epoch"], loaded["losses"])
        # -> True 7 [0.5, 0.25]
        print(loaded["net"]["bias"].dtype is net.bias.dtype)  # -> True
