"""Step loops04: A base class for the loops

LSTM and GRU need their own loops, but most of TanhLoop is not about tanh: the product of all
inputs, the gradients of weights and biases, the derivative on Tensors. Three copies would be three
places for a mistake. So this part becomes a base class, and a subclass writes two methods:

    run         the loop forwards: fills the outputs, changes the states in place
    run_back    the loop backwards: the gradients of the products, and of the states

and names the formula on Tensors, `step`, of which it is the fast form. The number of states is
open: an LSTM has two. `run` returns what `run_back` needs of it.

x and y are the two products at each step, y the one with h. Their gradients are usually the same
array, as only x + y counts; the GRU (step loops08) is the exception.

A loop with relu differs from TanhLoop in the function and its derivative alone, so `bend` and
`slope` become methods of their own. PyTorch's RNN takes either, as its `nonlinearity`.

The trap: both methods work in place. What a subclass forgets to write into `out` is not 0: it is
what the memory held before.

How many values are kept depends on the subclass. So forward sets ctx.saves (step node02): the
numbers of the arguments, ~0 for the first result, None for what `run` gave.

New: Loop, ReluLoop. Changed: TanhLoop.
Try: let run_back of TanhLoop return dh in place of d, and read the error.
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
        states, kept = rest[:n], rest[n:]
        before = states_before(kept[0], states[0], ctx.rows, ctx.xp)
        g_states = [s.copy() for s in g_states]
        dx, dy = ctx.run_back(g, w_hh, before, kept, states, *g_states)
        db = dx.sum(axis=0)
        return dx @ w_ih, dx.T @ input, dy.T @ before, db, db, None, *g_states

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
    from tinytorch.autograd.gradcheck import gradgradcheck
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

    for loop in (TanhLoop, ReluLoop):
        print(loop.__name__, difference(loop, weights, [x, *weights, h]) < 1e-12)
    # -> TanhLoop True
    # -> ReluLoop True

    def both(x, h, *weights):
        return TanhLoop.apply(x, *weights, rows, h)

    print(gradgradcheck(both, (x, h, *weights)))  # -> True
