"""Step resize04: out=: results in memory that is given

An optimizer outside of the package keeps the largest second moment that it has seen:

    torch.maximum(largest, second, out=largest)

`maximum` makes a new array in each step, and the program says that it is not needed. add, mul and
matmul take `out=` since step inplace07: with_out calls the function, and passes its result to
`into`, which refuses what cannot be written: an expanded tensor, another type, a call that autograd
would have to record.

The functions here get it in the same way. That saves no memory, but a program gets what it relies
on: the result is in the tensor that it gave. Only the functions of the package are wrapped. The
package itself calls those without `out=`, and pays nothing for it.

The trap: an `out` of another shape gets new memory, with a warning if it was not empty.

New: the functions that with_out makes.
Try: give `maximum` a tensor of integers as out. Which error comes?
"""

import importlib

from tinytorch.autograd.inplace import with_out
from tinytorch.ops import comparison, creation, elementwise, joining, reduction
from tinytorch.ops import matmul as products

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing reduction shape storage".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
