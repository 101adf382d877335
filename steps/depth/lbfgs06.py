"""Step lbfgs06: L-BFGS: both Wolfe conditions

The search of step lbfgs05 accepts any t that is small enough. A first try of 0.01 is accepted where
3 would be right, and the demo of step lbfgs05 shows it. A step that is too short teaches nothing:
the gradient is almost the same after it, and the pair (s, y) says little about the curvature.

Wolfe (1969) added a second condition, and in its strong form it is

    loss(t) <= loss(0) + 0.0001 t slope(0)     it went down, in proportion to the length
    |slope(t)| <= 0.9 |slope(0)|               and it is less steep: there is less left to win

It also makes y . s positive, so that every step leaves a pair. The 0.9 is lenient on purpose: a
search for the exact minimum of the line would cost many calls of the closure and win little.

The search has two phases. First t is doubled until a minimum must lie between two points: the loss
is too high, or the slope has become positive. Then the interval between them is halved. The new
point replaces the upper end, or the lower one, whose opposite is then chosen so that a minimum
stays between them. It ends with a point that satisfies both conditions.

The trap: the lower end is not the left one. `low` is the number of the end with the lower loss.

Changed: strong_wolfe.
Try: 0.9 -> 0.1 in `flat`. Fewer steps; are there fewer calls of the closure?
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
    """A Point with both Wolfe conditions, and how many were evaluated; or the best of `tries`.

        loss <= start.loss + 1e-4 t start.slope      low enough for a step of this length
        |slope| <= 0.9 |start.slope|                 and no longer as steep as at the start

    First t grows until a minimum lies between two points. Then the two are moved together, until
    one satisfies both conditions, or they are nearer to each other than `closest`.
    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6.
    """

    def too_high(p: Point) -> bool:
        return p.loss > start.loss + 1e-4 * p.t * start.slope

    def flat(p: Point) -> bool:
        return abs(p.slope) <= -0.9 * start.slope

    before, now, count, done = start, evaluate(t), 0, False
    while count < tries:
        if too_high(now) or (count > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if flat(now):
            bracket, done = [now], True
            break
        if now.slope >= 0:
            bracket = [before, now]
            break
        before, now, count = now, evaluate(2 * now.t), count + 1
    else:
        bracket = [start, now]
    low = int(bracket[0].loss > bracket[-1].loss)  # the number of the lower end
    while not done and count < tries and abs(bracket[1].t - bracket[0].t) >= closest:
        now, count = evaluate((bracket[0].t + bracket[1].t) / 2), count + 1
        if too_high(now) or now.loss >= bracket[low].loss:
            bracket[1 - low] = now
            low = int(bracket[0].loss > bracket[1].loss)
        else:
            done = flat(now)
            if not done and now.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
                bracket[1 - low] = bracket[low]
            bracket[low] = now
    return bracket[low], count + 1


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

    def run(loss_of, start, **options):
        """All losses that the closure has computed, and the counts of steps and calls."""
        x = tensor(start, dtype=float64, requires_grad=True)
        optimizer, losses = LBFGS([x], max_iter=100, **options), []

        def closure():
            x.grad = None
            loss = loss_of(x)
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
        ends = f"highest {max(losses):.1f}, last {loss_of(x).item():.0e}"
        return ends, optimizer.state[x]["n_iter"], len(losses)

    start = [-1.5, 2.0]
    search = {"line_search_fn": "strong_wolfe"}
    print(*run(rosenbrock, start, **search))  # -> highest 288.8, last 6e-14 43 60

    # With a first length of 0.1, step lbfgs05 ends at a loss of 0.9, after 100 steps and 105 calls.
    print(*run(rosenbrock, start, lr=0.1, **search))  # -> highest 20.7, last 9e-02 60 125

    # One search, seen from near. This line has its minimum at t = 3.
    def line(t):
        tried.append(round(float(t), 3))
        loss, slope = (t - 3.0) ** 2, tensor(2.0 * (t - 3.0))
        return Point(t, loss, None, slope)

    for first in (0.01, 1.0, 20.0):
        tried = []
        found, count = strong_wolfe(line, Point(0, 9.0, None, tensor(-6.0)), first, 25, 1e-9)
        print(count, tried)
    # -> 6 [0.01, 0.02, 0.04, 0.08, 0.16, 0.32]
    # -> 1 [1.0]
    # -> 3 [20.0, 10.0, 5.0]

    # A corner, two valleys, and a limit of calls: the search returns the lowest point it knows.
    print(*run(lambda x: (x - 0.3).abs().sum(), [1.0, -3.0], **search))
    # -> highest 4.0, last 3e-01 3 68
    print(*run(lambda x: (x**4).sum() + x.sin().sum() * 5, [3.0, -1.0], **search))
    # -> highest 78.5, last -7e+00 11 14
    print(*run(rosenbrock, start, max_eval=3, **search))  # -> highest 288.8, last 1e+01 1 4
    print(*run(rosenbrock, start, max_eval=1, **search))  # -> highest 288.8, last 1e+01 1 2
