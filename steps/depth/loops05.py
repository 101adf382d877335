"""Step loops05: Loops without biases, and gradients that are not needed

A layer may have no biases (bias=False), and the loops of step loops04 fail with them: None + None
is a TypeError. They also compute all gradients of each call. The input of the first layer is data,
and needs none; in a network that is only tuned, weights are frozen. Each of these gradients is a
product as large as a product of the forward pass, and it is thrown away.

ctx.needs_input_grad (step 62b) says which inputs need a gradient. What is not needed is not
computed, and backward returns None for it.

    input      dx W_ih             W_ih   dx^T input          b_ih, b_hh   sums of dx
    first h    run_back has it     W_hh   dy^T before

The trap: the loop backwards cannot be left out with them. dx and dy are needed for each of the
others.

Changed: Loop.forward, Loop.backward.
Try: leave out `if need[2] else None`. Which lines of the demo change?
"""

import importlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import Function
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import linear
from tinytorch.nn.modules.rnn_cells import relu_step, tanh_step
from tinytorch.ops.joining import cat

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def unroll(
    step: Callable,
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    rows: Sequence[slice],
    *states: Tensor,
) -> tuple[Tensor, ...]:
    """One direction of one layer, in operations on Tensors: (outputs, *last states).

    Args:
        step: the formula of a time step, as in rnn_cells.
        input: [all, size], the rows of all time steps.
        rows: for each time step, in the order of the loop, which rows are its own.
        states: [batch, hidden] each.
    """
    order = sorted(rows, key=attrgetter("start"))  # as they stand in `input`
    x = linear(input, w_ih, b_ih).split([part.stop - part.start for part in order])
    pieces = {part.start: piece for part, piece in zip(order, x, strict=True)}
    for part in rows:
        states = step(pieces[part.start], linear(states[0], w_hh, b_hh), *states)
        pieces[part.start] = states[0]  # the output takes the place of the input
    return (cat([pieces[part.start] for part in order]), *states)


def states_before(values: Any, first: Any, rows: Sequence[slice], xp: Any) -> Any:
    """The state before each time step, from those after it: row for row, [all, hidden]."""
    before, now = xp.empty_like(values), first.copy()
    for part in rows:
        before[part] = now
        now[...] = values[part]
    return before


class Loop(Function):
    """One direction of one layer as one node, with the arguments and results of `unroll`.

    The products of the inputs of all time steps are one matrix product, and so are the gradients of
    the weights: dL/dW is a sum over time of products, and a product of two long matrices. A
    subclass writes the loops over time, forwards and backwards, on arrays, in place:

        run(x, w_hh, b_hh, out, *states)
            fills `out`, changes the states into the last ones, returns what run_back needs
        run_back(g, w_hh, before, kept, states, *g_states)
            returns the gradients of the two products x and y, changes g_states into the gradients
            of the first states; `before` is the h before each step, `kept` are `out` and what run
            returned

    The gradient of the gradient takes the slow way, through `unroll`.
    """

    step: Callable  # the formula on Tensors, of which the subclass is the fast form

    def forward(
        ctx, input: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, rows, *states
    ) -> tuple:
        ctx.rows = rows
        x = input @ w_ih.T
        if b_ih is not None:
            x += b_ih + b_hh
        out = ctx.xp.empty((len(input), w_hh.shape[1]), input.dtype)
        last = [s.copy() for s in states]
        kept = ctx.run(x, w_hh, b_hh, out, *last)
        ctx.save_for_backward(input, w_ih, w_hh, b_ih, b_hh, *states, out, *kept)
        ctx.saves = 0, 1, 2, 3, 4, *range(6, 6 + len(states)), ~0, *(None for _ in kept)
        return (out, *last)

    def backward(ctx, g: Any, *g_states: Any) -> tuple:
        input, w_ih, w_hh, _, _, *rest = ctx.saved
        n = len(g_states)
        need = ctx.needs_input_grad
        states, kept = rest[:n], rest[n:]
        before = states_before(kept[0], states[0], ctx.rows, ctx.xp)
        g_states = [s.copy() for s in g_states]
        dx, dy = ctx.run_back(g, w_hh, before, kept, states, *g_states)
        db_ih = db_hh = dx.sum(axis=0) if need[3] or need[4] else None
        return (
            dx @ w_ih if need[0] else None,
            dx.T @ input if need[1] else None,
            dy.T @ before if need[2] else None,
            db_ih,
            db_hh,
            None,
            *g_states,
        )

    def gradients(ctx, grads: list) -> tuple:
        """On Tensors: the derivative of `unroll`, which can be differentiated again."""
        n = 5 + len(grads) - 1  # input, weights, biases; and a state for each result but `out`
        inputs = [ctx.saved_tensor(number) for number in range(n)]
        # Argument 5, `rows`, is not a tensor.
        needed = [edge is not None for edge in (*ctx.edges[:5], *ctx.edges[6:])]
        create_graph = state.grad_enabled
        with enable_grad():
            # Copies, so that no input is computed from another one on the way.
            inputs = [x.clone() if need else x for x, need in zip(inputs, needed, strict=True)]
            outputs = unroll(type(ctx).step, *inputs[:5], ctx.rows, *inputs[5:])
        wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
        found = iter(grad(outputs, wanted, grads, create_graph=create_graph, allow_unused=True))
        results = [next(found) if need else None for need in needed]
        return (*results[:5], None, *results[5:])


class TanhLoop(Loop):
    """h' = tanh(x + W h)."""

    step = staticmethod(tanh_step)

    def run(ctx, x: Any, w_hh: Any, b_hh: Any, out: Any, h: Any) -> tuple:
        for part in ctx.rows:
            xt = x[part]
            xt += h @ w_hh.T
            h[...] = ctx.bend(xt, out[part])
        return ()

    def run_back(ctx, g: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any) -> tuple:
        d = ctx.slope(kept[0])
        for part in reversed(ctx.rows):
            dt = d[part]
            dh += g[part]
            dt *= dh
            dh[...] = dt @ w_hh
        return d, d

    def bend(ctx, x: Any, out: Any) -> Any:
        return ctx.xp.tanh(x, out=out)

    def slope(ctx, y: Any) -> Any:
        return 1 - y * y


class ReluLoop(TanhLoop):
    """h' = relu(x + W h)."""

    step = staticmethod(relu_step)

    def bend(ctx, x: Any, out: Any) -> Any:
        return ctx.xp.maximum(x, 0, out=out)

    def slope(ctx, y: Any) -> Any:
        return (y > 0).astype(y.dtype)


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    rows = [slice(2 * t, 2 * t + 2) for t in range(5)]
    x = randn(10, 3, dtype=float64, requires_grad=True)
    h = randn(2, 4, dtype=float64, requires_grad=True)
    shapes = ((4, 3), (4, 4), (4,), (4,))
    weights = [randn(*shape, dtype=float64, requires_grad=True) for shape in shapes]

    def difference(loop, weights, inputs):
        """The largest difference between the gradients of the loop and of `unroll`."""
        found = []
        for run in (loop.apply, lambda *args: unroll(loop.step, *args)):
            out, last = run(x, *weights, rows, h)
            found.append(grad((out.square().sum() + last.sum()), inputs))
        return max((a - b).abs().max().item() for a, b in zip(*found, strict=True))

    # No biases.
    bare = [*weights[:2], None, None]
    for loop in (TanhLoop, ReluLoop):
        print(loop.__name__, difference(loop, bare, [x, *weights[:2], h]) < 1e-12)
    # -> TanhLoop True
    # -> ReluLoop True

    class Shown(TanhLoop):
        """Prints which gradients backward has computed."""

        def backward(ctx, *grads):
            results = super().backward(*grads)
            names = "input w_ih w_hh b_ih b_hh rows h".split()
            print(*(n for n, g in zip(names, results, strict=True) if g is not None))
            return results

    def shown(x, w_ih, w_hh, b_ih, b_hh, h):
        Shown.apply(x, w_ih, w_hh, b_ih, b_hh, rows, h)[0].sum().backward()

    shown(x, *weights, h)  # -> input w_ih w_hh b_ih b_hh h
    shown(x.detach(), *weights, h.detach())  # -> w_ih w_hh b_ih b_hh h
    shown(x, *(w.detach() for w in weights), h.detach())  # -> input h
    frozen = weights[1].detach()
    shown(x.detach(), weights[0], frozen, None, None, h.detach())  # -> w_ih h
