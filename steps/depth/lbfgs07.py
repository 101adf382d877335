"""Step lbfgs07: L-BFGS: cubic interpolation

Halving an interval uses one bit of what the last two tries have told: which half. But of each of
them the loss and the slope are known. Those are four numbers, and they determine a cubic, a
parabola with a bend. Its minimum is the best guess of where to try next:

    d1 = a' + b' - 3 (a - b) / (t_a - t_b)            a, b: the losses; a', b': the slopes
    d2 = sqrt(d1^2 - a' b')
    t  = t_b - (t_b - t_a) (b' + d2 - d1) / (b' - a' + 2 d2)

Near a minimum every smooth function is almost such a cubic, and each guess doubles the number of
correct digits. While t grows, the same formula says how far, at most ten times as far as now. Where
the root does not exist the cubic has no minimum, and the middle is taken.

The trap: a guess can stick. If the cubic says again and again "just beside this end", the interval
shrinks by a hair each time. So a try that lies within 10 % of an end is allowed once. The second
in a row is moved away from the end by that much.

With this the search is PyTorch's, and so is each number that it tries.

Changed: strong_wolfe. New: cubic_minimum. Finished: optim/lbfgs.py.
Try: let `near` always be False. What does the search before the wall do then?
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


def cubic_minimum(a: Point, b: Point, low: Any = None, high: Any = None) -> Any:
    """The t from low to high where the cubic through a and b, with their slopes, is smallest.

    low and high are by default the ends a and b. The result is the middle where there is no cubic
    with a minimum.
    """
    a, b = (a, b) if a.t <= b.t else (b, a)
    low, high = a.t if low is None else low, b.t if high is None else high
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = square.sqrt()
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, low), high)


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
        t = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10)
        before, now, count = now, evaluate(t), count + 1
    else:
        bracket = [start, now]
    low, stalled = int(bracket[0].loss > bracket[-1].loss), False  # number of the lower end
    while not done and count < tries and abs(bracket[1].t - bracket[0].t) >= closest:
        t = cubic_minimum(*bracket)
        left, right = sorted(p.t for p in bracket)
        margin = 0.1 * (right - left)
        near = min(right - t, t - left) < margin
        if near and (stalled or t >= right or t <= left):  # of two tries near an end, move one away
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            near = False
        stalled, now, count = near, evaluate(t), count + 1
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
    import math

    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    for module in ("autograd.backward", "core.printing"):
        importlib.import_module(f"tinytorch.{module}")

    def point(f, t):
        """The Point of a function of one number."""
        x = tensor(float(t), dtype=float64, requires_grad=True)
        loss = f(x)
        loss.backward()
        return Point(x.detach(), loss.item(), None, x.grad)

    # Two ways to log 3, where exp(x) - 3 x has its minimum. The slope says which end is replaced.
    def narrow(guess, tries):
        a, b, errors = point(curve, 0), point(curve, 3), []
        for _ in range(tries):
            middle = point(curve, guess(a, b))
            a, b = (a, middle) if middle.slope > 0 else (middle, b)
            errors.append(f"{middle.t.item() - math.log(3):.0e}")
        print(*errors)

    def curve(x):
        return x.exp() - 3 * x

    narrow(lambda a, b: (a.t + b.t) / 2, 6)  # -> 4e-01 -3e-01 3e-02 -2e-01 -7e-02 -2e-02
    narrow(cubic_minimum, 5)  # -> 2e-01 -1e-02 3e-05 -3e-10 -2e-16

    # Limits, a line that goes down for ever, and two points between which no cubic has a minimum.
    print(cubic_minimum(point(curve, 0), point(curve, 0.1), 0.2, 0.5))  # -> 0.5
    print(cubic_minimum(point(lambda x: -x, 0), point(lambda x: -x, 1), 2, 10))  # -> 10
    print(cubic_minimum(point(lambda x: -(x**3) - x, 0), point(lambda x: -(x**3) - x, 1)).item())
    # -> 0.5

    # One search, seen from near: from a first t that is far too small, and from one too large.
    def search(f, first, tries=25):
        tried = []

        def evaluate(t):
            tried.append(round(float(t), 3))
            return point(f, t)

        strong_wolfe(evaluate, point(f, 0), tensor(first, dtype=float64), tries, 1e-9)
        return tried

    print(search(lambda x: (x - 3) ** 2, 0.001))  # -> [0.001, 0.01, 0.1, 1.0]
    print(search(lambda x: (x - 3) ** 2, 100.0))  # -> [100.0, 3.0]
    print(search(lambda x: x**20 / 20 - x, 4.0))  # -> [4.0, 2.519, 1.586, 0.999]
    print(search(lambda x: x**2 - x, 4.0, tries=0))  # -> [4.0]

    # A slope that ends at a wall. Every second try sticks at the left end, and is moved away.
    print(search(lambda x: ((x - 1) * 1000).relu() - x, 4.0, tries=6))
    # -> [4.0, 0.002, 0.401, 0.403, 0.762, 0.763, 1.087]

    # The valley of step lbfgs06: 43 steps and 60 calls with halving.
    x, calls = tensor([-1.5, 2.0], dtype=float64, requires_grad=True), []
    optimizer = LBFGS([x], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        x.grad = None
        loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        loss.backward()
        calls.append(loss.item())
        return loss

    optimizer.step(closure)
    print(f"{calls[-1]:.0e}", optimizer.state[x]["n_iter"], len(calls))  # -> 2e-10 41 51
