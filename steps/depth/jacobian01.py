"""Step jacobian01: jacobian and vjp in the package's dress

Step 78c built the Jacobian row by row: a backward pass that begins with v computes v^T J, and with
unit vectors for v these are the rows. Here the product itself is a function too, vjp, as in
torch.autograd.functional. func is called with leaves of its own: the graph of the
caller's tensors is not touched, and no .grad is written. Shapes stay: J has the shape [*y.shape,
*x.shape].

The trap is to ask for the table where the product is all that is needed. For a layer with 1,000
inputs and 1,000 results, J has a million entries, and its passes cost a thousand times as much.

Changed: jacobian. New: call_on_leaves, vjp.
Try: the Jacobian of a matrix of 2 x 3 by its transposition. What are its shape and its entries?
"""

import importlib
from collections.abc import Callable

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@enable_grad()
def call_on_leaves(func: Callable, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(a leaf with the same elements, what func gives for it), recorded."""
    leaf = inputs.detach().requires_grad_()
    return leaf, func(leaf)


def vjp(func: Callable, inputs: Tensor, v: Tensor) -> tuple:
    """(output, v^T J): one backward pass, for a vector in the shape of the output."""
    x, y = call_on_leaves(func, inputs)
    (found,) = grad((y,), (x,), (v,))
    return y.detach(), found


def jacobian(func: Callable, inputs: Tensor) -> Tensor:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y."""
    x, y = call_on_leaves(func, inputs)
    n = y.numel()
    units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
    rows = [grad((y,), (x,), (unit,), True)[0] for unit in units.unbind(0)]
    return stack(rows).reshape(y.shape + x.shape)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    # A rotation of the plane by half a radian.
    def rotated(p):
        angle = tensor(0.5)
        c, s = angle.cos(), angle.sin()
        return stack([c * p[0] - s * p[1], s * p[0] + c * p[1]])

    p = tensor([3.0, 4.0], requires_grad=True)
    try:
        rotated(p).backward()
    except RuntimeError as reason:
        print(str(reason).partition(",")[0])
        # -> grad can be implicitly created only for scalar outputs

    J = jacobian(rotated, p)
    print([[round(v, 3) for v in row] for row in J.tolist()])
    # -> [[0.878, -0.479], [0.479, 0.878]]
    value, row = vjp(rotated, p, tensor([1.0, 0.0]))
    print("one pass, one row:", (row == J[0]).all().item(), value.shape)
    # -> one pass, one row: True tinytorch.Size([2])
    v = tensor([2.0, -1.0])
    print("v^T J:", (vjp(rotated, p, v)[1] - v @ J).abs().max().item() < 1e-6)  # -> v^T J: True
    # A rotation keeps lengths and angles: J^T J is the identity.
    print("J^T J = 1:", (J.T @ J - eye(2)).abs().max().item() < 1e-6)  # -> J^T J = 1: True
    print("no .grad is written:", p.grad)  # -> no .grad is written: None

    # Of elementwise functions, a diagonal; with shapes, the results come first.
    print(jacobian(lambda x: x * x, tensor([1.0, 2.0, 3.0])).tolist())
    # -> [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    print(jacobian(lambda x: x.sum(1), eye(3)).shape)  # -> tinytorch.Size([3, 3, 3])
