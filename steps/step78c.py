"""Step 78c: The Jacobian, row by row

A robot's arm has two joints. From their angles follow two numbers, where the hand is. Which angles
bring the hand to (1.2, 0.5)? Newton's method (step 26) needs the derivative. But backward wants one
number as its output, and here are two outputs and two inputs, so four derivatives:

    J[i, j] = dy_i / dx_j          row i is the gradient of output i

grad(y, x, v) computes v^T J: the rows of J, weighted by v and added up (step 65a). So with v = (1,
0) it gives the first row, and with (0, 1) the second one. jacobian asks for all rows, one pass for
each output; retain_graph keeps the graph for the next one. The outputs of func may have any shape,
and so may the inputs: J has the shape of y, then that of x.

Newton's step solves J d = (hand - goal) for d, and the demo needs five of them.

The trap is the price: a pass for each output. With 1,000 inputs and one output it is one pass, and
that is why training works. With one input and 1,000 outputs it is 1,000 passes for one column. (J
v, a column at a time, takes two passes; see the run below.)

PyTorch: torch.autograd.functional.jacobian(func, inputs).

New: jacobian.
Try: start with both angles 0, the arm stretched. What does solve say, and why?

In depth: jacobian01 to jacobian08, func01 to func13.
"""

import numpy as np

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.autograd.backward import grad
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import eye
from tinytorch.ops.joining import stack


def jacobian(func, inputs):
    """The matrix of all dy_i/dx_j for y = func(inputs), in the shape [*y.shape, *inputs.shape]."""
    x = inputs.detach().clone()
    x.requires_grad = True
    y = func(x)
    n = y.numel()
    units = eye(n, dtype=y.dtype).reshape(n, *y.shape)
    rows = [grad(y, x, unit, retain_graph=True)[0] for unit in units]
    return stack(rows).reshape(*y.shape, *x.shape)


if __name__ == "__main__":

    def hand(angles):
        """Where the hand of an arm is, whose two parts have the length 1."""
        a, b = angles[0], angles[0] + angles[1]
        return stack([a.cos() + b.cos(), a.sin() + b.sin()])

    angles = tensor([0.3, 1.0])
    print(jacobian(hand, angles).numpy().round(3))
    # -> [[-1.259 -0.964]
    # ->  [ 1.223  0.267]]

    goal, found = tensor([1.2, 0.5]), []
    for _ in range(5):
        away = hand(angles) - goal
        found.append(f"{(away * away).sum().item() ** 0.5:.4f}")
        step = np.linalg.solve(jacobian(hand, angles).numpy(), away.numpy())
        angles = angles - tensor(step)
    print("away:", *found)  # -> away: 0.7594 0.3860 0.0638 0.0020 0.0000
    print("the hand is at", hand(angles).numpy().round(4))
    # -> the hand is at [1.2 0.5]
