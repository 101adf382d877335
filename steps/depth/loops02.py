"""Step loops02: A recurrent layer as one node

`unroll` is the simple form of a recurrent layer, and the reference: this step and the next six
only make it faster. Unrolled, there are three nodes for each time step: a product, a sum, a tanh.
Sixty-four steps are 195 nodes, and more small arrays, for a formula of one line. The backward of
that formula can be written by hand, and it is a loop, too: from the last step to the first, with
the gradient dh of the state as its memory.

    dh += gradient of the output at t        it arrives from outside, and from step t + 1
    d_t = (1 - h_t^2) dh                     through tanh
    dh  = d_t W_hh                           to step t - 1

The d_t are kept side by side. Then the gradients of the weights, which are sums over time, are one
large product each: dL/dW_hh = d^T [h_0 ... h_(T-1)]. That is why `states_before` builds this
matrix.

`saves` declares what is kept (step node02): all arguments but number 5, the rows, and ~0, out.

The trap is `g_last.copy()`: the gradient of the last state belongs to the engine, and the loop
changes dh in place.

This backward is written for arrays: it writes in place. For a second derivative the engine calls it
with Tensors (step 33), and that is refused here. The next step mends it.

New: states_before, TanhLoop.
Try: leave out `dh += g[part]`. Then only the last state has a gradient, and all four are wrong.
"""

import importlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.node import Function
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
        if ctx.xp is Tensor:
            raise NotImplementedError("TanhLoop cannot be differentiated twice")
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


if __name__ == "__main__":
    import math
    import timeit

    from tinytorch.autograd.node import AccumulateGrad
    from tinytorch.nn.modules.rnn_cells import RNNCell
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    time, batch, size = 64, 32, 128
    x, cell = randn(time * batch, size), RNNCell(size, size)
    rows = [slice(batch * t, batch * (t + 1)) for t in range(time)]
    start = zeros(batch, size)

    def unrolled():
        return unroll(tanh_step, x, *cell.parameters(), rows, start)[0]

    def fused():
        return TanhLoop.apply(x, *cell.parameters(), rows, start)[0]

    def gradients(program):
        return grad(program().square().sum(), list(cell.parameters()))

    def nodes(end):
        """How many nodes there are behind this one."""
        seen, waiting = set(), [end]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                waiting += [next_node for next_node, _ in node.next_functions]
        return len([node for node in seen if not isinstance(node, AccumulateGrad)])

    print(nodes(unrolled().grad_fn), "nodes, or", nodes(fused().grad_fn))  # -> 195 nodes, or 1
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

    # With create_graph, backward is called with Tensors.
    try:
        grad(fused().square().sum(), cell.weight_hh, create_graph=True)
    except NotImplementedError as error:
        print(error)  # -> TanhLoop cannot be differentiated twice
