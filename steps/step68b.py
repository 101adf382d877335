"""Step 68b: gradcheck: one random direction

The table of step 68a takes one backward pass for each output. Which v tells most in a single pass?
The first thought is v = 1, which adds up all outputs, as y.sum().backward() does. The demo has a
cube, like Power of step 64b, whose backward forgets to multiply by g. With v = 1 every g is 1, so
the wrong gradient is the right one, and a test with sum() passes. In a network g is anything but 1.

So v is random. Both sides compute v^T J, one number for each x_j:

    grad(y, x, v)      backward            v @ numerical_jacobian(...)      differences

A wrong entry of column j can hide only if other wrong entries of the column cancel it, for just
these random numbers. That does not happen by chance.

Neither side is exact, so the two count as equal if |a - b| <= atol + rtol |b|. Checked are the
inputs that require a gradient. materialize_grads=True makes zeros of the None for one that is not
used.

The trap: only the inputs that are given are checked. A derivative that is wrong for x < 0 passes
with positive numbers, and at a kink, like relu's at 0, the differences are wrong.

PyTorch: the same name and defaults. It compares the whole table, or one number, v^T J u, with
fast_mode=True. The package takes v^T J, as here, but makes no table.

New: GradcheckError, gradcheck.
Try: v of ones in gradcheck. What does it say of Cube, and of WriteColumn from step 68a?
"""

import numpy as np

import tinytorch.ops.indexing  # noqa: F401 (table[key])
import tinytorch.ops.reduction  # noqa: F401 (x.sum)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.custom import CustomFunction as Function  # PyTorch's name for it
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import cat, stack


def as_tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def joined_outputs(func, inputs):
    """All elements of the results of func(*inputs), one after the other, in one vector."""
    return cat([y.reshape(-1) for y in as_tuple(func(*inputs))])


def numerical_jacobian(func, inputs, x, eps=1e-6):
    """J[i][j] = dy_i / dx_j by central differences. x is one of the inputs, y all outputs."""
    values = x.detach()  # on the memory of x: what is written here moves x
    columns = []
    for place in np.ndindex(*x.shape):
        start = values[place].item()
        ends = []
        for moved in (start + eps, start - eps):
            values[place] = moved
            with no_grad():
                ends.append(joined_outputs(func, inputs))
        values[place] = start
        columns.append((ends[0] - ends[1]) / (2 * eps))
    return stack(columns, 1)


class GradcheckError(RuntimeError):
    """Backward and differences disagree."""


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Whether v^T J by backward is that by differences, for a random v and each checked input."""
    inputs = as_tuple(inputs)
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    y = joined_outputs(func, inputs)
    v = tensor(np.random.default_rng(0).uniform(-1.0, 1.0, y.shape))
    found = grad(y, checked, v, allow_unused=True, materialize_grads=True)
    for number, (x, by_backward) in enumerate(zip(checked, found, strict=True)):
        analytical = by_backward.numpy().reshape(-1)
        numerical = v.numpy() @ numerical_jacobian(func, inputs, x, eps).numpy()
        if not np.allclose(analytical, numerical, rtol=rtol, atol=atol):
            if not raise_exception:
                return False
            raise GradcheckError(
                f"Jacobian mismatch for input {number}, times a random v:\n"
                f"numerical: {numerical}\nanalytical: {analytical}"
            )
    return True


if __name__ == "__main__":

    class Cube(Function):
        """x^3. Its backward forgets g."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3.0 * x * x

    x = tensor([0.5, -1.5], dtype=float64, requires_grad=True)
    (g,) = grad(Cube.apply(x).sum(), x)
    print("by sum():", g.tolist())  # 3 x^2, as it should be
    # -> by sum(): [0.75, 6.75]
    try:
        gradcheck(Cube.apply, x)
    except RuntimeError as error:
        print(str(error)[:17])  # -> Jacobian mismatch
    print("no error:", gradcheck(Cube.apply, x, raise_exception=False))  # -> no error: False
    c = tensor([3.0, 4.0], dtype=float64)
    print("two results, a constant:", gradcheck(lambda x, c: (x * c, x.sum()), (x, c)))
    # -> two results, a constant: True

    def write(table, w):
        """Leaves a CopySlices in the graph (step 67c)."""
        out = table * 1.0
        out[:, 0].mul_(w)
        return out

    table = tensor([[1.0, 2.0], [3.0, 4.0]], dtype=float64, requires_grad=True)
    print("CopySlices:", gradcheck(write, (table, x)))  # -> CopySlices: True
