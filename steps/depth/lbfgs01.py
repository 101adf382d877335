"""Step lbfgs01: L-BFGS: curvature from the last steps

Adam gives each number its own rate, but looks at no two numbers together. In a valley along an axis
that is enough. In the same valley turned by 45 degrees, where the two numbers have to change
together, it needs 15 times as many steps (see the demo). Newton's method (step 26) divides by the
curvature and goes to the minimum of a parabola at once: d = -H g, where H is the inverse of the
Hessian. But with n parameters that is a table of n * n second derivatives, and its inverse.

Two gradients already tell something about it. After a step s, the gradient has changed by y, and of
the true H we know that H y = s, up to what is not a parabola. BFGS (1970) corrects its H after each
step so that this holds, and changes it as little as possible:

    H = (1 - r s y^T) H (1 - r y s^T) + r s s^T,      r = 1 / (y . s)

L-BFGS never makes this table. It keeps the last m pairs (s, y), and applies those products from
both sides to the one vector that counts, the gradient: first the right factors, from the newest
pair to the oldest; then a number in the place of the first H; then the left factors, from the
oldest to the newest. That is the two-loop recursion: 4 m n multiplications, and 2 m n numbers.

The trap: y . s must be positive, which is to say that the slope has risen along the step. Where the
loss curves the other way, H would point uphill. Such a pair is left out.

(The names in the state are PyTorch's: old_stps holds the s, old_dirs the y, and H_diag the number
in the place of the first H.)

New: newton_direction, remember. Moved: step rules15, to adam.py and rmsprop.py.
Try: leave out the condition `ys > 1e-10`. Where does the direction on the hill lead?
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def newton_direction(grad: Tensor, state: dict[str, Any]) -> Tensor:
    """-H grad. H is the inverse Hessian that fits the last steps s and the changes y of the
    gradient along them. It is never made: the two-loop recursion applies it.

    Source: Nocedal, Updating Quasi-Newton Matrices with Limited Storage, 1980.
    """
    history = list(zip(state["old_stps"], state["old_dirs"], state["ro"], strict=True))
    d, factors = -grad, []
    for s, y, r in reversed(history):
        factors.append(r * s.dot(d))
        d = d - factors[-1] * y
    d = d * state["H_diag"]
    for (s, y, r), factor in zip(history, reversed(factors), strict=True):
        d = d + (factor - r * y.dot(d)) * s
    return d


def remember(state: dict[str, Any], grad: Tensor, size: int) -> None:
    """Adds the last step, and the change of the gradient that it has made, to at most `size`."""
    y, s = grad - state["prev_flat_grad"], state["t"] * state["d"]
    ys = y.dot(s)
    if ys > 1e-10:  # else the loss is not convex here, and H would not lead downhill
        for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / ys)):
            state[name] = [*state[name], value][-size:]
        state["H_diag"] = ys / y.dot(y)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.core.tensor import tensor
    from tinytorch.optim.adam import Adam

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    # Adam in a valley along an axis, and in the same valley turned by 45 degrees.
    along = np.diag([1.0, 1000.0])
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    across = turn @ along @ turn.T

    def steps_of_adam(matrix, start):
        """How many steps it takes until x^T matrix x / 2 is below 1e-6."""
        matrix, x = tensor(matrix), tensor(start, requires_grad=True)
        optimizer, count = Adam([x], lr=0.1), 0
        while (loss := x @ matrix @ x / 2).item() > 1e-6:
            x.grad = None
            loss.backward()
            optimizer.step()
            count += 1
        return count

    start = np.array([3.0, 1.0])
    print("along an axis", steps_of_adam(along, start))  # -> along an axis 152
    print("turned       ", steps_of_adam(across, turn @ start))  # -> turned        2246

    def new_state():
        return {"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0}

    def walk(state, gradient, places, size=10):
        """Remembers the steps from place to place."""
        for before, after in zip(places[:-1], places[1:], strict=True):
            state.update(prev_flat_grad=gradient(before), t=1.0, d=after - before)
            remember(state, gradient(after), size)

    # Two steps in the turned valley, and the pairs show where the minimum is: x + d.
    def gradient(x):
        return tensor(across) @ x

    places = [tensor(turn @ [a, b]) for a, b in ([3.0, 1.0], [2.0, 1.0], [2.0, 0.5])]
    walk(state := new_state(), gradient, places)
    x = places[-1]
    for name, d in (
        ("steepest descent", -0.001 * gradient(x)),
        ("two pairs       ", newton_direction(gradient(x), state)),
    ):
        print(name, "leads to", (x + d).numpy().round(2))
    # -> steepest descent leads to [1.41 1.41]
    # -> two pairs        leads to [0. 0.]

    # The recursion against the table that it never makes, in four dimensions.
    rng = np.random.default_rng(0)
    curvature = np.diag([1.0, 2.0, 3.0, 4.0])
    places = [tensor(place) for place in rng.normal(size=(6, 4))]
    walk(state := new_state(), lambda x: tensor(curvature) @ x, places, size=3)
    print(len(state["ro"]), "of 5 pairs are kept")  # -> 3 of 5 pairs are kept
    pairs = [
        (s.numpy(), y.numpy()) for s, y in zip(state["old_stps"], state["old_dirs"], strict=True)
    ]
    s, y = pairs[-1]
    table = np.eye(4) * (s @ y) / (y @ y)
    for s, y in pairs:
        factor = np.eye(4) - np.outer(s, y) / (s @ y)
        table = factor @ table @ factor.T + np.outer(s, s) / (s @ y)
    g = rng.normal(size=4)
    print(np.allclose(newton_direction(tensor(g), state).numpy(), -table @ g))  # -> True
    print(np.allclose(table @ y, s))  # -> True

    # On the hill cos(x), the slope falls along a step: the pair is left out, and d leads downhill.
    walk(state := new_state(), lambda x: -x.sin(), [tensor([0.1]), tensor([0.2])])
    print(len(state["ro"]), newton_direction(-tensor([0.2]).sin(), state).item() > 0)  # -> 0 True
