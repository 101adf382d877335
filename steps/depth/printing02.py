"""Step printing02: Device, dtype and history in the printout

Two tensors that behave differently print the same:

    tensor([1.5000])   a float32 leaf          tensor([1.5000])   a float64 product

PyTorch adds what is not obvious after the elements, and only that:

    device='...'            not the CPU
    size=(0, 3)             no elements, and not just [0]
    dtype=tinytorch.float64 not the type that Python numbers would have got
    grad_fn=<MulBackward0>  a result; or requires_grad=True for a leaf

A note goes on the last line if it fits into 80 characters, and on a line of its own otherwise. The
width is counted from the last line break, because the elements may take several lines.

Changed: tensor_repr. New: format_tensor, which takes the name in front, so that a subclass can
print its own.
Try: print tensor([], dtype=int64) and tensor([]). Why does only one of them name its dtype?
"""

import math
from collections.abc import Callable
from typing import Any

import tinytorch.autograd.backward  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.core.device import Backend, cpu, register_backend
from tinytorch.core.dtype import Defaults, bool_, float64, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return format_tensor(self, "tensor" if type(self) is Tensor else type(self).__name__)


def whole(value: float) -> str:
    """A float without digits behind the point: `3.`, and `inf` and `nan` as they are."""
    return f"{value:.0f}." if math.isfinite(value) else str(value)


def number_format(values: list) -> tuple[Callable[[Any], str], int]:
    """(how each of `values` is written, the width that all of them get).

    Floats share one style. Whole numbers end in a point, others have `precision` digits; where
    these would hide much (the numbers very large, very small, or far apart) it is powers of 10.
    Zeros, inf and nan have no say in it.
    """
    if not isinstance(values[0], float):
        return str, max(len(str(value)) for value in values)
    normal = [value for value in values if value != 0 and math.isfinite(value)]
    if not normal:
        return whole, 1
    sizes = [abs(value) for value in normal]
    small, large = min(sizes), max(sizes)
    scientific = large / small > 1000.0 or large > 1e8 or small < 1e-4
    if scientific or not all(value.is_integer() for value in normal):
        write = f"{{:.4{'e' if scientific else 'f'}}}".format
    else:
        write = whole
    return write, max(len(write(value)) for value in normal)


def layout(array: Any, write: Callable[[Any], str], width: int, indent: int) -> str:
    """The elements in nested brackets, each at the same width; `indent` aligns the rows."""
    if array.ndim == 0:
        return write(array.item()).rjust(width)
    if array.ndim == 1:
        return "[" + ", ".join(write(value).rjust(width) for value in array.tolist()) + "]"
    items = [layout(part, write, width, indent + 1) for part in array]
    line_ends = "\n" * (array.ndim - 1)  # an empty line between matrices
    return "[" + f",{line_ends}{' ' * (indent + 1)}".join(items) + "]"


def format_tensor(tensor: Tensor, name: str) -> str:
    """`name(elements, ...)`, with all that is not obvious: device, size, dtype, history."""
    array, shape, dtype = tensor.array, tensor.shape, tensor.dtype
    indent, notes, body = len(name) + 1, [], "[]"
    if tensor.device is not cpu:
        notes.append(f"device='{tensor.device}'")
    if array.size == 0:
        if len(shape) != 1:
            notes.append(f"size={tuple(shape)}")
        obvious = (Defaults.dtype,)
    else:
        obvious = (Defaults.dtype, int64, bool_)
        array = tensor.device.backend.to_numpy(array)
        body = layout(array, *number_format(array.ravel().tolist()), indent)
    if dtype not in obvious:
        notes.append(f"dtype={dtype!r}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    text = f"{name}({body}"
    column = len(text) - text.rfind("\n") + 1
    for note in notes:  # on the last line if it has room, else on one of their own
        fits = column + len(note) + 2 <= 80
        text += (", " if fits else ",\n" + " " * indent) + note
        column = (column + 2 if fits else indent) + len(note)
    return text + ")"


if __name__ == "__main__":
    print(tensor([1.5], dtype=float64), tensor([1.5]))
    # -> tensor([1.5000], dtype=tinytorch.float64) tensor([1.5000])
    print(tensor([1, 2]), tensor([True]), tensor([], dtype=int64))
    # -> tensor([1, 2]) tensor([True]) tensor([], dtype=tinytorch.int64)
    print(tensor([[], []]))  # -> tensor([], size=(2, 0))

    w = tensor(2.0, requires_grad=True)
    b = tensor(1.0, requires_grad=True)
    y = w * tensor(0.5) + b
    print(w, y, y.detach(), sep="   ")
    # -> tensor(2., requires_grad=True)   tensor(2., grad_fn=<AddBackward0>)   tensor(2.)

    row = tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]], requires_grad=True)
    print(row * 1.0)  # the note does not fit behind the elements
    # -> tensor([[0.1000, 0.2000, 0.3000, 0.4000, 0.5000, 0.6000, 0.7000]],
    # ->        grad_fn=<MulBackward0>)

    row = tensor([[0.1, 0.2, 0.3, 0.4]], dtype=float64, requires_grad=True)
    print(row * 1.0)  # the first note fits, the second does not
    # -> tensor([[0.1000, 0.2000, 0.3000, 0.4000]], dtype=tinytorch.float64,
    # ->        grad_fn=<MulBackward0>)

    class Scaled(Tensor):
        """A subclass prints under its own name."""

    print(Scaled([1.0, 2.0]))  # -> Scaled([1., 2.])

    # A tensor that is not on the CPU says where it is. A second array type stands for a GPU here.
    from tinytorch.core.device import Backend, register_backend

    class OtherArray(type(w.array)):
        """NumPy's array under another name."""

    copy = Backend(cpu.xp, OtherArray, lambda array, _: array.view(OtherArray), cpu.xp.asarray)
    register_backend("other", copy)
    print(tensor([1.0], device="other"))  # -> tensor([1.], device='other')
