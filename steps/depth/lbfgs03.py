"""Step lbfgs03: L-BFGS: several steps per call

In the race of step lbfgs02 the program called step() in a loop, until the loss was small enough.
L-BFGS does not work with batches anyway: its y is the difference of two gradients, and if they come
from different batches, most of it is noise. So it is used on all of the data, and one call of
step() may as well take many steps. The closure makes this possible: it is called again for each.

    max_iter            at most so many steps for each call of step(); PyTorch's default is 20
    max_eval            at most so many calls of the closure, which is where the time goes

The last step of a call needs no gradient afterwards. So the closure is not called for it: the next
call of step() begins with it. What was learned of the curvature stays in the state in between.

The trap is the meaning of an epoch: `for _ in range(15): optimizer.step(closure)` takes up to 300
steps, and what step() returns is the loss before the first of the 20.

Changed: LBFGS.
Try: clear the state where step() begins. How far do the 5 calls get?
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
    """Newton's method without a Hessian: step(closure) takes up to max_iter steps -t H grad.

    closure() computes the loss and its gradients, and is called at least once in each step.

    Args:
        lr: the length t.
        max_iter, max_eval: at most so many steps and evaluations for each call of `step`; max_eval
            is 1.25 max_iter by default.
        history_size: so many steps are remembered.
    Source: Liu and Nocedal, On the Limited Memory BFGS Method, 1989.
    Raises:
        ValueError: for more than one group of parameters, and a negative lr.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        history_size: int = 100,
    ):
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
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
        """Up to max_iter steps. Returns the loss before the first one."""
        group, closure = self.param_groups[0], enable_grad()(closure)
        params = group["params"]
        state = self.state[params[0]]
        first = closure()
        grad, evals = self.gather_grad(), 1
        state["func_evals"] = state.get("func_evals", 0) + 1
        state.setdefault("n_iter", 0)
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
                d, t = -grad, min(1.0, 1.0 / grad.abs().sum()) * group["lr"]
            else:
                remember(state, grad, group["history_size"])
                d, t = newton_direction(grad, state), group["lr"]
            state.update(d=d, t=t, prev_flat_grad=grad)
            self.move(t * d)
            count = int(n < group["max_iter"])  # the last gradient would not be used
            if count:
                closure()
                grad = self.gather_grad()
            evals += count
            state["func_evals"] += count
            if evals >= group["max_eval"]:
                break
        return first


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    def parabola(x):
        return (x**2 * tensor([1.0, 10.0, 100.0], dtype=x.dtype)).sum()

    def run(loss_of, start, calls=1, **options):
        """Where it ends, and what the state counts."""
        x = tensor(start, dtype=float64, requires_grad=True)
        optimizer = LBFGS([x], **options)

        def closure():
            x.grad = None
            loss = loss_of(x)
            loss.backward()
            return loss

        for _ in range(calls):
            before = optimizer.step(closure)
        state = optimizer.state[x]
        losses = f"{before.item():.3g} -> {loss_of(x).item():.1e}"
        return losses, state["n_iter"], state["func_evals"]

    start = [3.0, -2.0, 1.0]
    print("one step  ", *run(parabola, start, max_iter=1))
    # -> one step   149 -> 4.6e+01 1 1
    print("max_iter  ", *run(parabola, start, max_iter=5))
    # -> max_iter   149 -> 5.7e+00 5 5
    print("5 calls   ", *run(parabola, start, calls=5, max_iter=1))
    # -> 5 calls    10.3 -> 5.7e+00 5 5
    print("max_eval  ", *run(parabola, start, max_eval=3))
    # -> max_eval   149 -> 3.5e+01 2 3
    print("no end    ", *run(parabola, start, max_iter=100))
    # -> no end     149 -> 0.0e+00 100 100
