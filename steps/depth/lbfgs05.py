"""Step lbfgs05: L-BFGS: a line search

Newton's step leads to the minimum of a parabola. Where the loss is not one, it may lead anywhere,
and what L-BFGS knows of the curvature may be wrong. In Rosenbrock's valley (step 25) one of the
steps of length 1 makes the loss 300 times larger than it was at the start.

So try a length t, compare the losses, and try another one, along the line x + t d. Which t is good
enough? A lower loss is too weak a condition: steps that win less and less each time may never
arrive. Armijo (1966) asks for a fixed part of what the slope promises:

    loss(t) <= loss(0) + 0.0001 t slope(0)

and halves t until it is so. Since d leads downhill, a t that is small enough always does.

Each try costs a call of the closure, a forward and a backward pass. Most often the first one, with
t = 1, is good at once: that is what makes L-BFGS cheap. max_eval counts the tries, too.

The trap: a closure with dropout, or with a new batch in each call, makes a line that moves while it
is searched.

The parameters go to x + t d and return to x for each try, bit for bit: x is copied back.

(The option is called "strong_wolfe" after the two conditions of PyTorch's search. This is the first
of them, and step lbfgs06 adds the second.)

Changed: LBFGS. New: strong_wolfe, Point.
Try: start the search at lr=0.001. What does it never do?
"""

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

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


class Point(NamedTuple):
    """A place x + t d on the line of a search: the loss there, its gradient, its slope along d."""

    t: Any
    loss: float
    grad: Tensor
    slope: Tensor


def strong_wolfe(
    evaluate: Callable[[Any], Point], start: Point, t: Any, tries: int, closest: Any
) -> tuple[Point, int]:
    """A Point low enough for a step of its length, and how many were evaluated.

        loss <= start.loss + 1e-4 t start.slope

    t is halved until it is so, at most `tries` times, and not below `closest`.
    """

    def too_high(p: Point) -> bool:
        return p.loss > start.loss + 1e-4 * p.t * start.slope

    now, count = evaluate(t), 0
    while too_high(now) and count < tries and now.t >= closest:
        now, count = evaluate(now.t / 2), count + 1
    return now, count + 1


class LBFGS(Optimizer):
    """Newton's method without a Hessian: step(closure) takes up to max_iter steps -t H grad.

    closure() computes the loss and its gradients, and is called at least once in each step.

    Args:
        lr: the length t, or, with a line search, the first length that it tries.
        max_iter, max_eval: at most so many steps and evaluations for each call of `step`; max_eval
            is 1.25 max_iter by default.
        tolerance_grad: stops where no element of the gradient is larger.
        tolerance_change: stops where neither the loss nor a parameter changes by more.
        history_size: so many steps are remembered.
        line_search_fn: None, or "strong_wolfe".
    Source: Liu and Nocedal, On the Limited Memory BFGS Method, 1989.
    Raises:
        ValueError: for more than one group of parameters, and a negative lr.
        RuntimeError: for another line search.
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
        line_search_fn: str | None = None,
    ):
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
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

    def evaluate(self, closure: Callable, origin: list[Tensor], d: Tensor, t: Any) -> Point:
        """The Point at origin + t d. The parameters, which are at `origin`, return there."""
        self.move(t * d)
        loss, grad = float(closure()), self.gather_grad()
        for p, x in zip(self.param_groups[0]["params"], origin, strict=True):
            p.copy_(x)
        return Point(t, loss, grad, grad.dot(d))

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
            start = Point(0, loss, grad, grad.dot(d))
            state.update(d=d, t=t, prev_flat_grad=grad, prev_loss=loss)
            if start.slope > -smallest:
                break
            if group["line_search_fn"] is not None:
                evaluate = partial(self.evaluate, closure, [p.clone() for p in params], d)
                tries, closest = group["max_eval"] - evals, smallest / d.abs().max()
                (t, loss, grad, _), count = strong_wolfe(evaluate, start, t, tries, closest)
                state["t"] = t
                self.move(t * d)
            else:
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
                or abs(loss - start.loss) < smallest
            ):
                break
        return first


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    def rosenbrock(x):
        return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    def run(**options):
        """All losses that the closure has computed, and the counts of steps and calls."""
        x = tensor([-1.5, 2.0], dtype=float64, requires_grad=True)
        optimizer, losses = LBFGS([x], max_iter=100, **options), []

        def closure():
            x.grad = None
            loss = rosenbrock(x)
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
        ends = f"first {losses[0]:.1f}, highest {max(losses):.1f}, last {rosenbrock(x).item():.0e}"
        return ends, optimizer.state[x]["n_iter"], len(losses)

    print("length 1:", *run())  # -> length 1: first 12.5, highest 4018.8, last 5e-11 89 89
    print("search:  ", *run(line_search_fn="strong_wolfe"))
    # -> search:   first 12.5, highest 288.8, last 3e-10 44 54

    # One search, seen from near. This line has its minimum at t = 3.
    def line(t):
        tried.append(round(float(t), 3))
        loss, slope = (t - 3.0) ** 2, tensor(2.0 * (t - 3.0))
        return Point(t, loss, None, slope)

    for first in (0.01, 1.0, 20.0):
        tried = []
        found, count = strong_wolfe(line, Point(0, 9.0, None, tensor(-6.0)), first, 25, 1e-9)
        print(count, tried)
    # -> 1 [0.01]
    # -> 1 [1.0]
    # -> 3 [20.0, 10.0, 5.0]

    try:
        LBFGS([tensor([1.0], requires_grad=True)], line_search_fn="golden")
    except RuntimeError as error:
        print(error)  # -> only 'strong_wolfe' is supported
