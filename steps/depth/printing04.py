"""Step printing04: Print options

Four decimals do not suit every table: amounts of money need two, and another program that reads the
output may not know powers of ten. The demo prints three prices, and the style hides them.
set_printoptions changes the settings for all tensors:

    precision   decimals                    threshold   elements, above which a tensor is abridged
    sci_mode    powers of ten or not        edgeitems   elements shown at each end
    linewidth   characters in a line        profile     "default", "short" or "full": all at once

The trap is PyTorch's, kept here: an option that is not given stays as it is, but sci_mode becomes
automatic again with every call.

Changed: number_format reads precision and sci_mode. New: set_printoptions. Finished:
core/printing.py.
Try: set_printoptions(profile="full"), then print tensor(list(range(1200)))."""

import math
from collections.abc import Callable
from typing import Any

import tinytorch.autograd.backward  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.core.device import cpu
from tinytorch.core.dtype import Defaults, bool_, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return format_tensor(self, "tensor" if type(self) is Tensor else type(self).__name__)


class PrintOptions:
    """What set_printoptions sets."""

    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None
    profiles = {
        "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
        "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
        "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
    }


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print. What is not given stays; only sci_mode becomes automatic again.

    Args:
        precision: digits behind the point of a floating point number.
        threshold: a tensor with more elements than this is abridged.
        edgeitems: elements that stay at each end of an abridged dimension.
        linewidth: characters in a line.
        profile: "default", "short" or "full", all of these at once; the others correct it.
        sci_mode: True for 1.0000e+00, False for 1.0000, None for what suits the numbers.

    Raises:
        ValueError: there is no such profile.
    """
    if profile not in (None, *PrintOptions.profiles):
        raise ValueError(f"profile is one of {list(PrintOptions.profiles)}, not {profile!r}")
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in {**PrintOptions.profiles.get(profile, {}), **chosen}.items():
        setattr(PrintOptions, name, value)
    PrintOptions.sci_mode = sci_mode


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
    scientific = PrintOptions.sci_mode
    if scientific is None:
        scientific = large / small > 1000.0 or large > 1e8 or small < 1e-4
    if scientific or not all(value.is_integer() for value in normal):
        write = f"{{:.{PrintOptions.precision}{'e' if scientific else 'f'}}}".format
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
    prices = tensor([1.0, 100000.0, 0.001])
    print(prices)  # -> tensor([1.0000e+00, 1.0000e+05, 1.0000e-03])
    set_printoptions(precision=2, sci_mode=False)
    print(prices)  # -> tensor([     1.00, 100000.00,      0.00])
    set_printoptions(edgeitems=1, threshold=4)
    print(prices, tensor([1, 2, 3, 4, 5]))
    # -> tensor([1.00e+00, 1.00e+05, 1.00e-03]) tensor([1,  ..., 5])
    set_printoptions(profile="default")
    print(prices)  # -> tensor([1.0000e+00, 1.0000e+05, 1.0000e-03])
    try:
        set_printoptions(profile="long")
    except ValueError as error:
        print(error)  # -> profile is one of ['default', 'short', 'full'], not 'long'
