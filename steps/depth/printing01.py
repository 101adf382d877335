"""Step printing01: How a tensor prints

A tensor still prints as nested Python lists. Look at what that does to one row of results:

    tensor([[0.3333333432674408, 0.6666666865348816, 1.0], [-1.3333333730697632, ...

Sixteen digits, of which float32 holds seven, and columns that do not line up. People also compare
the output of two programs, so a tensor should print as PyTorch's does, character for character.

PyTorch chooses one style for all the numbers of a tensor:

    all are whole numbers       3.             a point, and no digits behind it
    otherwise                   0.3333         four decimals
    far apart, huge or tiny     1.0000e-03     powers of ten: largest / smallest > 1000,
                                               largest > 1e8 or smallest < 1e-4

and one width, that of the longest number, so that the columns are aligned. Zeros, inf and nan do
not influence the style.

A class prints by its method __repr__. It is attached by @tensor_method like any operation, so
printing can have a module of its own.

Changed: tensor_repr. New: whole, number_format, layout.
Try: print tensor([1.0, 999.5]) and tensor([1.0, 1000.5]), and find the condition that decides.
"""

import math
from collections.abc import Callable
from typing import Any

import tinytorch.autograd.backward  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.core.tensor import Tensor, tensor, tensor_method


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    array = self.device.backend.to_numpy(self.array)
    if array.size == 0:
        return "tensor([])"
    return f"tensor({layout(array, *number_format(array.ravel().tolist()), len('tensor('))})"


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


if __name__ == "__main__":
    x = tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]])
    print(x)
    # -> tensor([[ 1.,  2.,  3.],
    # ->         [-4.,  5.,  6.]])
    print(x / 3.0)
    # -> tensor([[ 0.3333,  0.6667,  1.0000],
    # ->         [-1.3333,  1.6667,  2.0000]])
    print((x / 3.0).tolist()[0])  # -> [0.3333333432674408, 0.6666666865348816, 1.0]

    # 0.001 beside 100000 would print as 0.0010 or lose the row's width: powers of ten.
    print(tensor([1.0, 100000.0, 0.001]))  # -> tensor([1.0000e+00, 1.0000e+05, 1.0000e-03])
    print(tensor([1, 20, 300]), tensor(True), tensor(2.5))
    # -> tensor([  1,  20, 300]) tensor(True) tensor(2.5000)
    print(tensor([float("nan"), 0.0]), tensor([float("nan"), float("-inf"), 2.0]), tensor([]))
    # -> tensor([nan, 0.]) tensor([nan, -inf, 2.]) tensor([])
    print(tensor([[[1, 2]], [[3, 4]]]))
    # -> tensor([[[1, 2]],
    # ->         [[3, 4]]])
