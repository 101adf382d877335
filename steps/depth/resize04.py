"""Step resize04: out=: results in memory that is given

An optimizer outside of the package keeps the largest second moment that it has seen:

    torch.maximum(largest, second, out=largest)

`maximum` makes a new array in each step, and the program says that it is not needed. add, mul and
matmul take `out=` since step inplace07, where `into` writes a result into a tensor, and refuses
what cannot be written: an expanded tensor, another type, a call that autograd would have to record.

All other functions get a wrapper: it calls the function, and passes its result to `into`. That
saves no memory, but a program gets what it relies on: the result is in the tensor that it gave.
Only the functions of the package are wrapped. Methods have no `out=`, and so pay nothing for it.

The trap: an `out` of another shape gets new memory, with a warning if it was not empty.

New: with_out, and the functions that are made by it.
Try: give `maximum` a tensor of integers as out. Which error comes?
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import into
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison, creation, elementwise, joining, reduction
from tinytorch.ops import matmul as products

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing reduction shape storage".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def with_out(function: Callable) -> Callable:
    """The function with an argument `out`: a tensor that takes the result, and is returned.

    Raises:
        RuntimeError: as of `into`.
    """

    @functools.wraps(function)
    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result if out is None else into(out, result)

    return call


abs = with_out(elementwise.abs)
bmm = with_out(products.bmm)
cat = with_out(joining.cat)
clamp = with_out(comparison.clamp)
div = with_out(elementwise.div)
exp = with_out(elementwise.exp)
eye = with_out(creation.eye)
log = with_out(elementwise.log)
maximum = with_out(elementwise.maximum)
mean = with_out(reduction.mean)
minimum = with_out(elementwise.minimum)
mm = with_out(products.mm)
pow = with_out(elementwise.pow)
rsqrt = with_out(elementwise.rsqrt)
sqrt = with_out(elementwise.sqrt)
stack = with_out(joining.stack)
sum = with_out(reduction.sum)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")

    largest, second = tensor([1.0, 5.0]), tensor([3.0, 4.0])
    print(maximum(largest, second, out=largest) is largest, largest)  # -> True tensor([3., 5.])
    batch = tensor([])
    print(stack([largest, second], 0, out=batch) is batch, batch.shape)
    # -> True tinytorch.Size([2, 2])
    print(clamp(second, 0.0, 3.5, out=second), mm(batch, eye(2), out=batch)[0])
    # -> tensor([3.0000, 3.5000]) tensor([3., 5.])
    weight = tensor([1.0, 1.0], requires_grad=True)
    try:
        exp(weight, out=largest)
    except RuntimeError as error:
        print(str(error)[:66])
    # -> functions with out=... arguments don't support automatic different
