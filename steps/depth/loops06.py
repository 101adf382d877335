"""Step loops06: The loop of the LSTM

The same with four gates and a second state; it computes what unroll(lstm_step, ...) computes, only
faster. Backward needs the gates of each step, the state c after it and tanh(c), so these are kept:
six numbers for each unit and step. Then

    dh += output's gradient      do = dh tanh(c) o (1 - o)         dc += dh o (1 - tanh(c)^2)
    di = dc g i (1 - i)          df = dc c_(t-1) f (1 - f)         dg = dc i (1 - g^2)
    dc *= f  (to step t - 1)     dh = [di df dg do] W_hh

o (1 - tanh(c)^2) is o - h tanh(c), and h = o tanh(c) is there already.

The gates need no memory of their own: they take the place of x, the product from which they are
computed, and parts_of gives views of the four. Likewise the four gradients are views of the rows
of d.

The trap is the order of writing: dc must not be multiplied by f before di, df and dg have used it.

New: parts_of, sigmoid_in_place, LstmLoop.
Try: move `dc *= f` in front of the line of di, and look at the comparison.
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
from tinytorch.nn.modules.rnn_cells import lstm_step, relu_step, tanh_step
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


def parts_of(array: Any, n: int) -> list:
    """Views of the n equal parts of the last dimension."""
    size = array.shape[-1] // n
    return [array[..., k * size : (k + 1) * size] for k in range(n)]


def sigmoid_in_place(x: Any, xp: Any) -> None:
    """x = 1 / (1 + exp(-x))."""
    xp.negative(x, out=x)
    xp.exp(x, out=x)
    x += 1
    xp.reciprocal(x, out=x)


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


class LstmLoop(Loop):
    """c' = f c + i g, h' = o tanh(c')."""

    step = staticmethod(lstm_step)

    def run(ctx, x: Any, w_hh: Any, b_hh: Any, out: Any, h: Any, c: Any) -> tuple:
        xp, cells, bent = ctx.xp, ctx.xp.empty_like(out), ctx.xp.empty_like(out)
        for part in ctx.rows:
            z = x[part]
            z += h @ w_hh.T
            i, f, g, o = parts_of(z, 4)
            for gate in (i, f, o):
                sigmoid_in_place(gate, xp)
            xp.tanh(g, out=g)
            c *= f
            c += i * g
            cells[part] = c
            xp.multiply(o, xp.tanh(c, out=bent[part]), out=out[part])
            h[...] = out[part]
        return x, cells, bent  # x holds the gates now

    def run_back(
        ctx, grad: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any, dc: Any
    ) -> tuple:
        xp, (out, gates, cells, bent) = ctx.xp, kept
        c_before, d = states_before(cells, states[1], ctx.rows, xp), xp.empty_like(gates)
        for part in reversed(ctx.rows):
            (i, f, g, o), (di, df, dg, do) = parts_of(gates[part], 4), parts_of(d[part], 4)
            k = bent[part]
            dh += grad[part]
            xp.multiply(dh * k, o - o * o, out=do)
            dc += (o - out[part] * k) * dh
            xp.multiply(dc * g, i - i * i, out=di)
            xp.multiply(dc * c_before[part], f - f * f, out=df)
            xp.multiply(dc * i, 1 - g * g, out=dg)
            dc *= f
            dh[...] = d[part] @ w_hh
        return d, d


if __name__ == "__main__":
    import math
    import timeit

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.nn.modules.rnn_cells import LSTMCell
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    time, batch, size = 64, 32, 128
    cell, x, start = LSTMCell(size, size), randn(time * batch, size), zeros(batch, size)
    rows = [slice(batch * t, batch * (t + 1)) for t in range(time)]

    def unrolled():
        return unroll(lstm_step, x, *cell.parameters(), rows, start, start)

    def fused():
        return LstmLoop.apply(x, *cell.parameters(), rows, start, start)

    def gradients(program):
        out, h, c = program()
        return grad(out.square().sum() + (h * c).sum(), list(cell.parameters()))

    close = [
        bool(((a - b).abs() < 1e-4 * (1 + a.abs())).all())
        for a, b in zip(gradients(unrolled), gradients(fused), strict=True)
    ]
    print("the same gradients:", close)  # -> the same gradients: [True, True, True, True]
    best = [math.inf] * 2
    for _ in range(3):
        for i, program in enumerate((unrolled, fused)):
            best[i] = min(best[i], timeit.timeit(lambda p=program: gradients(p), number=1))
    print(f"one node takes {best[1] / best[0]:.2f} of the time")  # -> ...

    # The other loops are as they were.
    small = [slice(2 * t, 2 * t + 2) for t in range(3)]
    x3, h3 = randn(6, 3, dtype=float64), randn(2, 3, dtype=float64)
    weights = [randn(*s, dtype=float64) for s in ((3, 3), (3, 3), (3,), (3,))]
    for loop in (TanhLoop, ReluLoop):
        fast = loop.apply(x3, *weights, small, h3)[0]
        print((fast - unroll(loop.step, x3, *weights, small, h3)[0]).abs().max().item() < 1e-12)
    # -> True
    # -> True
    inputs = [
        randn(*s, dtype=float64) for s in ((6, 3), (8, 3), (8, 2), (8,), (8,), (2, 2), (2, 2))
    ]

    def all_of_it(*inputs):
        return LstmLoop.apply(*inputs[:5], small, *inputs[5:])

    for value in inputs:
        value.requires_grad_()
    print(gradcheck(all_of_it, inputs), gradgradcheck(all_of_it, inputs))  # -> True True
