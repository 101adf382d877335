"""Step lbfgs02: L-BFGS: the optimizer

The functions of step lbfgs01 take one vector, and a network has many parameters. So the optimizer
joins their gradients into one vector, and divides the step d among the parameters again. What it
has to remember belongs to all of them together; it stands in the state of the first one. Groups of
parameters with rates of their own would make no sense: there is one direction, and one length.

Each step is

    g = the gradients after closure()
    remember the last step, and the change of g since then
    x = x + lr d,    d = newton_direction(g)

With lr = 1, a step along d ends at the minimum if the loss is a parabola and the pairs tell its
curvature. The first step has no pair yet, and a gradient alone does not tell how far it is to the
minimum. So that step goes along the gradient, and its elements move by at most 1 altogether.

The trap: history_size=5 saves memory, but what a forgotten pair said about the curvature has to be
learned again. In the demo's race that costs four times as many steps.

(torch.optim.LBFGS does the same.)

New: LBFGS.
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
    Raises:
        ValueError: for more than one group of parameters, and a negative lr.
    """

    def __init__(self, params: Iterable, lr: float = 1, history_size: int = 100):
        super().__init__(params, checked(locals()))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

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

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    from tinytorch.optim.adam import Adam
    from tinytorch.optim.sgd import SGD

    rng = np.random.default_rng(0)

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
    print("L-BFGS", race(lambda p: LBFGS(p)))  # -> L-BFGS 80
    # Over hundreds of steps rounding, which differs between machines, moves the end by a few steps.
    times = race(lambda p: LBFGS(p, history_size=5)) / 80
    print(f"m = 5: {times:.0f} times as many")  # -> m = 5: 4 times as many

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

    # One direction for all parameters: no groups.
    try:
        LBFGS([{"params": [x]}, {"params": [tensor([1.0], requires_grad=True)]}])
    except ValueError as error:
        print(error)  # -> LBFGS doesn't support per-parameter options (parameter groups)
