"""Step loops03: The second derivative of a fused loop

With create_graph=True, or with a mode that is watching, the engine needs the gradients of a node as
Tensors with a graph. It calls the node's method `gradients`, which by default calls backward with
Tensors in place of arrays. TanhLoop.backward cannot be called so: it writes in place, into arrays
that it has made itself, and step loops02 refused it.

But the same layer is there in operations on Tensors: `unroll`. So TanhLoop.gradients runs `unroll`
once more on the inputs, and differentiates that:

    gradients(g) = grad(unroll(inputs), inputs, g)

This is slower, and rarely needed, and no second formula has to be found by hand.

The trap is an input that is computed from another one, as W_hh = 2 W_ih^T in the demo. Then `grad`
follows this link, too: it returns for W_ih also what arrives through W_hh, and the engine, which
knows the link, adds that a second time. So `gradients` takes copies, which are not linked.

Changed: TanhLoop.
Try: leave out the copies (x.clone()), and find the line of the demo that notices.
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
from tinytorch.nn.modules.rnn_cells import tanh_step
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


class TanhLoop(Function):
    """h' = tanh(x + W h) over all time steps, as one node, with the arguments of `unroll`."""

    step = staticmethod(tanh_step)
    saves = 0, 1, 2, 3, 4, 6, ~0

    def forward(ctx, input: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, rows, h: Any) -> tuple:
        ctx.rows = rows
        x = input @ w_ih.T
        x += b_ih + b_hh
        out, last = ctx.xp.empty((len(input), w_hh.shape[1]), input.dtype), h.copy()
        for part in rows:
            xt = x[part]
            xt += last @ w_hh.T
            last[...] = ctx.xp.tanh(xt, out=out[part])
        ctx.save_for_backward(input, w_ih, w_hh, b_ih, b_hh, h, out)
        return out, last

    def backward(ctx, g: Any, g_last: Any) -> tuple:
        input, w_ih, w_hh, _, _, h, out = ctx.saved
        d, dh = 1 - out * out, g_last.copy()
        for part in reversed(ctx.rows):
            dt = d[part]
            dh += g[part]
            dt *= dh
            dh[...] = dt @ w_hh
        db = d.sum(axis=0)
        before = states_before(out, h, ctx.rows, ctx.xp)
        return d @ w_ih, d.T @ input, d.T @ before, db, db, None, dh

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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    # One matrix in two roles.
    x, rows = randn(6, 3, dtype=float64), [slice(0, 2), slice(2, 4), slice(4, 6)]
    w, b, h = randn(3, 3, dtype=float64), randn(3, dtype=float64), randn(2, 3, dtype=float64)

    def tied(x, w, h):
        return TanhLoop.apply(x, w, w.T * 2, b, b, rows, h)

    inputs = [value.requires_grad_() for value in (x, w, h)]
    print(gradcheck(tied, inputs), gradgradcheck(tied, inputs))  # -> True True
    fast, slow = (grad(tied(x, w, h)[0].sum(), w, create_graph=again)[0] for again in (False, True))
    print("both ways agree:", (fast - slow).abs().max().item() < 1e-12)  # -> both ways agree: True
