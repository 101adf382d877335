"""nan_to_num: numbers in place of nan and inf."""

import math
from typing import Any

from tinytorch.core.arguments import checked
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor
from tinytorch.ops.comparison import isnan, where
from tinytorch.ops.conversion import clone
from tinytorch.ops.elementwise import attach


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
