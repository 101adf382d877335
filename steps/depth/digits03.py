"""Step digits03: nan_to_num: replacing what is not a number

A single nan in a tensor makes every sum nan, and every weight that its gradient reaches. It comes
from 0 / 0, inf - inf, the logarithm of a negative number, or from a file in which it means
"unknown". By then it is too late to subtract the maximum (step digits02): the number is already
lost. What can be done is to replace it:

    nan     ->  0                     a weight of 0, no influence
    inf     ->  the largest number of the type (finfo), or one that is given
    -inf    ->  the smallest

nan_to_num is three calls of `where` (step compare06), which bring the derivative: 0 where something
was replaced.

The trap: nan == nan is false. So a comparison cannot find a nan; `isnan` tests whether x differs
from itself. And nan_to_num hides mistakes: find out where a nan comes from before you replace it.

PyTorch: torch.nan_to_num. Integers have neither nan nor inf, so they are returned as a copy.

Changed: a new module, ops/composite.py. New: nan_to_num.
Try: ask `out == math.inf` in the second line of `where`. What is nan_to_num(x, nan=math.inf) then?
"""

import importlib
import math
from typing import Any

from tinytorch.core.arguments import checked
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.comparison import isnan, where
from tinytorch.ops.conversion import clone
from tinytorch.ops.elementwise import attach

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
@attach("nan_to_num")
def nan_to_num(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    """A copy with numbers in place of nan (0, if none is given), inf and -inf (the largest and the
    smallest of the type). Integers stay as they are."""
    if not input.is_floating_point():
        return clone(input)
    limits = finfo(input.dtype)
    out = where(isnan(input), nan or 0.0, input)
    out = where(input == math.inf, limits.max if posinf is None else posinf, out)
    return where(input == -math.inf, limits.min if neginf is None else neginf, out)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    x = tensor([1.0, math.nan, math.inf, -math.inf], requires_grad=True)
    print("one nan is enough:", x[:2].sum().item())  # -> one nan is enough: nan
    print("by comparison:", (x == math.nan).tolist(), "isnan:", isnan(x).tolist())
    # -> by comparison: [False, False, False, False] isnan: [False, True, False, False]
    y = nan_to_num(x)
    print(y.tolist())  # -> [1.0, 0.0, 3.402823e+38, -3.402823e+38]
    print(nan_to_num(x, nan=-1.0, posinf=10.0, neginf=-10.0).tolist())
    # -> [1.0, -1.0, 10.0, -10.0]
    print("gradient:", grad(y[:2].sum(), x)[0].tolist())  # -> gradient: [1.0, 0.0, 0.0, 0.0]
    print("half:", nan_to_num(x.half()).tolist())  # -> half: [1.0, 0.0, 65504.0, -65504.0]
    print("integers:", nan_to_num(tensor([1, 2])).tolist())  # -> integers: [1, 2]
