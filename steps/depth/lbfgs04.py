"""Step lbfgs04: L-BFGS: stopping criteria

With max_iter=100, step lbfgs03 takes 100 steps, although the loss is 1e-12 after 15. Each of these
four conditions ends the call now. They use numbers that are known anyway:

    gradient     no element of it is larger than tolerance_grad: a minimum
    step         no parameter moves by more than tolerance_change
    loss         it changes by less than tolerance_change
    direction    it leads down by less than tolerance_change: g . d > -tolerance_change

The gradient is checked before the first step, too: a call at the minimum costs one evaluation.

The trap: the tolerances are absolute numbers, as in PyTorch, and know nothing about the size of the
loss. A loss that is multiplied by 1e-5 is "done" before the first step, as the demo shows.

Changed: LBFGS.
Try: tolerance_grad=1e-3 and tolerance_change=0 with max_iter=100. Which loss is left?
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
        tolerance_grad: stops where no element of the gradient is larger.
        tolerance_change: stops where neither the loss nor a parameter changes by more.
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
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
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
        params, smallest = group["params"], group["tolerance_change"]
        state = self.state[params[0]]
        first = closure()
        loss, grad, evals = float(first), self.gather_grad(), 1
        state["func_evals"] = state.get("func_evals", 0) + 1
        state.setdefault("n_iter", 0)
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
                d, t = -grad, min(1.0, 1.0 / grad.abs().sum()) * group["lr"]
            else:
                remember(state, grad, group["history_size"])
                d, t = newton_direction(grad, state), group["lr"]
            state.update(d=d, t=t, prev_flat_grad=grad, prev_loss=loss)
            if grad.dot(d) > -smallest:
                break
            self.move(t * d)
            count = int(n < group["max_iter"])  # the last gradient would not be used
            if count:
                loss, grad = float(closure()), self.gather_grad()
            evals += count
            state["func_evals"] += count
            if (
                evals >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or (t * d).abs().max() <= smallest
                or abs(loss - state["prev_loss"]) < smallest
            ):
                break
        return first


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    def parabola(x):
        return (x**2 * tensor([1.0, 10.0, 100.0], dtype=x.dtype)).sum()

    def run(loss_of, start, **options):
        """Where it ends, and what the state counts."""
        x = tensor(start, dtype=float64, requires_grad=True)
        optimizer = LBFGS([x], **options)

        def closure():
            x.grad = None
            loss = loss_of(x)
            loss.backward()
            return loss

        before = optimizer.step(closure)
        state = optimizer.state[x]
        losses = f"{before.item():.3g} -> {loss_of(x).item():.1e}"
        return losses, state["n_iter"], state["func_evals"]

    start = [3.0, -2.0, 1.0]
    # Step lbfgs03 took 100 steps here.
    print("as long as it helps", *run(parabola, start, max_iter=100))
    # -> as long as it helps 149 -> 1.1e-12 15 15
    print("gradient  ", *run(parabola, start, tolerance_grad=5.0, max_iter=100))
    # -> gradient   149 -> 5.7e+00 5 6
    print("change    ", *run(parabola, start, tolerance_change=0.1, max_iter=100))
    # -> change     149 -> 5.3e-02 11 11
    print("at the minimum", *run(parabola, [0.0, 0.0, 0.0]))  # -> at the minimum 0 -> 0.0e+00 0 1
    print("no slope  ", *run(lambda x: 1e-5 * x.sum(), start))
    # -> no slope   2e-05 -> 2.0e-05 1 1
