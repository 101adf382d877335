"""Step printing03: Large tensors, abridged

print(tensor(range(2000))) prints two thousand numbers on one line, and a matrix of weights fills
the terminal. PyTorch shows the three elements at each end of a dimension, and dots in between:

    tensor([0, 1, 2,  ..., 1997, 1998, 1999])

This happens above 1,000 elements in all (threshold), with three at each end (edgeitems). The array
is cut *before* it is copied to the host: of a matrix on a GPU 36 numbers travel, not a million.

Long rows break after as many numbers as fit into 80 characters (linewidth).

The trap: cutting also changes the style, since only the elements that are shown decide it. In a row
PyTorch writes two spaces before the dots, and so does layout.

Changed: layout breaks rows and marks the gaps; format_tensor. New: PrintOptions, abridged.
Try: PrintOptions.threshold = 4, then print tensor([1, 2, 3, 4, 5]). Why are there no dots?
"""

import math
from collections.abc import Callable
from typing import Any

import tinytorch.autograd.backward  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.core.device import cpu
from tinytorch.core.dtype import Defaults, bool_, int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return format_tensor(self, "tensor" if type(self) is Tensor else type(self).__name__)


class PrintOptions:
    """When a tensor is abridged, how many elements stay at each end, and how long a line is."""

    threshold = 1000
    edgeitems = 3
    linewidth = 80


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


def abridged(array: Any, xp: Any) -> Any:
    """The elements at the ends of each dimension that is too long to be shown."""
    n = PrintOptions.edgeitems
    for dim, size in enumerate(array.shape):
        if size > 2 * n:
            array = xp.take(array, xp.asarray([*range(n), *range(size - n, size)]), axis=dim)
    return array


def layout(
    array: Any, shape: tuple[int, ...], write: Callable[[Any], str], width: int, indent: int
) -> str:
    """The elements in nested brackets. `shape` is that of the tensor: where it is longer than the
    array, the array is abridged, and dots mark the gap."""
    if not shape:
        return write(array.item()).rjust(width)
    dots = [" ..." if len(shape) == 1 else "..."] if len(array) < shape[0] else []
    if len(shape) == 1:
        items = [write(value).rjust(width) for value in array.tolist()]
    else:
        items = [layout(part, shape[1:], write, width, indent + 1) for part in array]
    items[len(items) // 2 : len(items) // 2] = dots
    if len(shape) == 1:
        per_line = int(max(1, (PrintOptions.linewidth - indent) // (width + 2)))
        starts = range(0, len(items), per_line)
        items = [", ".join(items[start : start + per_line]) for start in starts]
    line_ends = "\n" * max(1, len(shape) - 1)
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
        if array.size > PrintOptions.threshold:
            array = abridged(array, tensor.device.xp)
        array = tensor.device.backend.to_numpy(array)
        body = layout(array, shape, *number_format(array.ravel().tolist()), indent)
    if dtype not in obvious:
        notes.append(f"dtype={dtype!r}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    text = f"{name}({body}"
    column = len(text) - text.rfind("\n") + 1
    for note in notes:  # on the last line if it has room, else on one of their own
        fits = column + len(note) + 2 <= PrintOptions.linewidth
        text += (", " if fits else ",\n" + " " * indent) + note
        column = (column + 2 if fits else indent) + len(note)
    return text + ")"


if __name__ == "__main__":
    print(tensor(list(range(2000))))  # -> tensor([   0,    1,    2,  ..., 1997, 1998, 1999])
    print(tensor([float(i) for i in range(2000)]))
    # -> tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,
    # ->         1.9990e+03])
    matrix = tensor([[float(10 * i + j) for j in range(40)] for i in range(40)])
    print(matrix)
    # -> tensor([[  0.,   1.,   2.,  ...,  37.,  38.,  39.],
    # ->         [ 10.,  11.,  12.,  ...,  47.,  48.,  49.],
    # ->         [ 20.,  21.,  22.,  ...,  57.,  58.,  59.],
    # ->         ...,
    # ->         [370., 371., 372.,  ..., 407., 408., 409.],
    # ->         [380., 381., 382.,  ..., 417., 418., 419.],
    # ->         [390., 391., 392.,  ..., 427., 428., 429.]])
    print("numbers that are read:", abridged(matrix.array, matrix.device.xp).size)
    # -> numbers that are read: 36
    print(tensor(list(range(1001)), dtype=int32))  # the note goes behind the abridged elements
    # -> tensor([   0,    1,    2,  ...,  998,  999, 1000], dtype=tinytorch.int32)
    print(tensor(list(range(30))))  # a row that is too long for one line
    # -> tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,
    # ->         18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])
