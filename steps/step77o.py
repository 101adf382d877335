"""Step 77o: L-BFGS: curvature from the last steps

Adam gives each number its own rate, but looks at no two numbers together. If the loss is a valley
that runs diagonally, all of these methods zigzag down its walls. Newton's method (step 26) divides
by the curvature and goes to the minimum of a parabola at once: d = -H g, where H is the inverse of
the Hessian. But with n parameters that is a table of n * n second derivatives, and its inverse.

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

The first step has no pair, so it goes along the gradient, with a length of at most 1. (The names in
the state are PyTorch's, and old_dirs holds the y.)

New: LBFGS, newton_direction, remember. Moved: step 77n, to adam.py and rmsprop.py.
Try: history_size=2 in the race. What is lost?
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import zeros_like
from tinytorch.ops.joining import cat
from tinytorch.optim.optimizer import Optimizer, checked

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


class LBFGS(Optimizer):
    """Newton's method without a Hessian: step(closure) takes a step -lr H grad.

    closure() computes the loss and its gradients.

    Args:
        lr: the length t.
        history_size: so many steps are remembered.
    Source: Liu and Nocedal, On the Limited Memory BFGS Method, 1989.
    """

    def __init__(self, params: Iterable, lr: float = 1, history_size: int = 100):
        super().__init__(params, checked(locals()))

    def gather_grad(self) -> Tensor:
        """The gradients of all parameters, as one vector."""
        params = self.param_groups[0]["params"]
        return cat([(zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params])

    def move(self, change: Tensor) -> None:
        """Adds a vector to the parameters."""
        params = self.param_groups[0]["params"]
        for p, part in zip(params, change.split([p.numel() for p in params]), strict=True):
            p.add_(part.view_as(p))

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """One step. Returns the loss before it."""
        group, closure = self.param_groups[0], enable_grad()(closure)
        state = self.state[group["params"][0]]
        loss = closure()
        grad = self.gather_grad()
        state["n_iter"] = state.get("n_iter", 0) + 1
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            d, t = -grad, min(1.0, 1.0 / grad.abs().sum()) * group["lr"]
        else:
            remember(state, grad, group["history_size"])
            d, t = newton_direction(grad, state), group["lr"]
        state.update(d=d, t=t, prev_flat_grad=grad)
        self.move(t * d)
        return loss


if __name__ == "__main__":
    import numpy as np

    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import zeros

    for module in ("autograd.engine", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    from tinytorch.optim.adam import Adam
    from tinytorch.optim.sgd import SGD

    rng = np.random.default_rng(0)

    # The recursion against the table that it never makes.
    pairs = [(s, s @ np.diag([1.0, 2.0, 3.0, 4.0])) for s in rng.normal(size=(3, 4))]
    s, y = pairs[-1]
    table = np.eye(4) * (s @ y) / (y @ y)
    for s, y in pairs:
        factor = np.eye(4) - np.outer(s, y) / (s @ y)
        table = factor @ table @ factor.T + np.outer(s, s) / (s @ y)
    g = rng.normal(size=4)
    state = {
        "old_stps": [tensor(s) for s, _ in pairs],
        "old_dirs": [tensor(y) for _, y in pairs],
        "ro": [1 / float(s @ y) for s, y in pairs],
        "H_diag": float(s @ y) / float(y @ y),
    }
    print(np.allclose(newton_direction(tensor(g), state).numpy(), -table @ g))  # -> True
    print(np.allclose(table @ y, s))  # -> True

    # A race: fit 30 weights to features whose sizes differ by a factor of 100.
    a = tensor(rng.normal(size=(200, 30)) * np.logspace(-1, 1, 30))
    b = a @ tensor(rng.normal(size=30))

    def race(make):
        """How many gradients it takes until the loss is below 1e-6; at most 2000."""
        w, unused = zeros(30, dtype=float64), zeros(3, dtype=float64)
        w.requires_grad_()
        optimizer = make([w, unused])  # a parameter without a gradient stays as it is

        def closure():
            w.grad = None
            loss = ((a @ w - b) ** 2).mean() / 2
            loss.backward()
            return loss

        count = 1
        while optimizer.step(closure).item() > 1e-6 and count < 2000:
            count += 1
        return count

    print("SGD   ", race(lambda p: SGD(p, lr=0.015)))  # -> SGD    2000
    print("Adam  ", race(lambda p: Adam(p, lr=0.1)))  # -> Adam   176
    print("L-BFGS", race(lambda p: LBFGS(p)))  # -> L-BFGS 92
    print("m = 5 ", race(lambda p: LBFGS(p, history_size=5)))  # -> m = 5  357

    # At the top of a hill, a pair tells nothing: there are none until the hill becomes a valley.
    x = tensor([0.1], requires_grad=True)
    optimizer = LBFGS([x])

    def hill():
        x.grad = None
        loss = x.cos().sum()
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(hill)
        print(f"{x.item():.3f}", len(optimizer.state[x]["ro"]))
    # -> 0.200 0
    # -> 0.398 0
    # -> 0.786 0
    # -> 1.494 0
    # -> 2.491 0
    # -> 4.034 1
