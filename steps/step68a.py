"""Step 68a: A Jacobian by differences

You have written functions of your own (step 64b), and CopySlices (67c). Their gradients have the
right shapes. Are they right? Step 10 compared backward with differences, and warned: it moves all
elements at once. That is right only where y_i depends on x_i alone. The demo's function writes a
column into a table: which output moves with which input? The answers are the *Jacobian*:

    J[i][j] = dy_i / dx_j        column j:  (f(x + eps e_j) - f(x - eps e_j)) / (2 eps)

e_j is 1 at place j, else 0: one element moves at a time. Backward has the same table by rows: it
gets a gradient v of the outputs and computes v^T J, the sum of v_i times row i. So v = e_i gives
row i.

The difference goes to both sides of x, for then the error falls as eps^2 (step 04). The trap is
eps. If it is too large, the curve bends between the two points; if it is too small, the difference
has few digits left. In the demo float64 still has ten digits at 1e-6, where float32 is wrong by 5
percent. So inputs have to be float64.

This file begins anew: it imports the finished package, whose tensors do what yours do, and holds
only the check. x.detach() shares the memory of x (step 62a), so a write into it moves x.

PyTorch: torch.autograd.functional.jacobian makes this table by backward, row after row.

New: as_tuple, joined_outputs, numerical_jacobian.
Try: mend WriteColumn.backward. Where does g hold the gradient of the values?
"""

import numpy as np

import tinytorch.ops.indexing  # noqa: F401 (table[key])
import tinytorch.ops.reduction  # noqa: F401 (x.sum)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.custom import CustomFunction as Function  # PyTorch's name for it
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float32, float64
from tinytorch.core.tensor import tensor
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


if __name__ == "__main__":

    class WriteColumn(Function):
        """table with `values` in its first column. Backward looks for them in the first row."""

        @staticmethod
        def forward(ctx, table, values):
            out = table.clone()
            out[:, 0] = values
            return out

        @staticmethod
        def backward(ctx, g):
            rest = g.clone()
            rest[:, 0] = 0.0
            return rest, g[0]

    table = tensor([[1.0, 2.0], [3.0, 4.0]], dtype=float64, requires_grad=True)
    values = tensor([5.0, 6.0], dtype=float64, requires_grad=True)
    J = numerical_jacobian(WriteColumn.apply, (table, values), values)
    print("by differences:", J.numpy().round(6).tolist())
    # -> by differences: [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    y = WriteColumn.apply(table, values).reshape(-1)
    rows = [grad(y[i], values, retain_graph=True)[0].tolist() for i in range(4)]
    print("by backward:   ", rows)  # values[1] is in y[2], and backward says y[1]
    # -> by backward:    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]

    J = numerical_jacobian(lambda x: (x * x, x.sum()), [values], values)  # two results
    print(J.numpy().round(6).tolist())  # -> [[10.0, 0.0], [0.0, 12.0], [1.0, 1.0]]

    # The derivative of x^3 at 1.5 is 6.75. How wrong is the difference?
    for eps in (1e-2, 1e-4, 1e-5, 1e-6, 1e-8):
        errors = []
        for dtype in (float32, float64):
            x = tensor([1.5], dtype=dtype)
            found = numerical_jacobian(lambda x: x * x * x, [x], x, eps).item()
            errors.append(f"{abs(found / 6.75 - 1):.0e}")
        print(f"eps {eps:.0e}:", *errors)
        # -> eps 1e-02: 1e-05 1e-05
        # -> eps 1e-04: 3e-04 1e-09
        # -> eps 1e-05: 1e-03 2e-11
        # -> eps 1e-06: 5e-02 9e-11
        # -> eps 1e-08: 1e+00 6e-09
