"""Step loops08: The loop of the GRU

In a GRU the two products do not simply add up: n = tanh(x_n + r y_n). So y_n has to be kept, its
bias b_hh belongs to it alone and cannot be added to all x at once, and the gradients of x and y
differ in one place:

    dn  = dh (1 - z) (1 - n^2)                 gradient of x_n
          dn r                                 gradient of y_n
    dr  = dn y_n r (1 - r)                     of both x_r and y_r
    dz  = dh (h_(t-1) - n) z (1 - z)           of both x_z and y_z
    dh  = dh z + [dr dz dn*r] W_hh             what was kept, and the way through the gates

This is the exception for which step loops04 left room: run_back returns two arrays.

The trap is h_(t-1), which dz needs: in forward the state is overwritten in place, and what is left
of it are the outputs. states_before finds it there, and dz uses the same rows as dL/dW_hh.

W_hh^T is copied once, as in step loops07. So it is in TanhLoop from now on.

Changed: Loop, with bias_inside; TanhLoop.run. New: GruLoop.
Try: return dx for both in run_back, and see which of the gradients is wrong.
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
from tinytorch.nn.modules.rnn_cells import gru_step, lstm_step, relu_step, tanh_step
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


def by_gate(array: Any, n: int) -> Any:
    """A view of [rows, n * hidden] as [n, rows, hidden]."""
    rows, width = array.shape
    return array.reshape(rows, n, width // n).swapaxes(0, 1)


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
    bias_inside = False  # b_hh belongs to y alone; else it is added to all x at once

    def forward(
        ctx, input: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, rows, *states
    ) -> tuple:
        ctx.rows = rows
        x = input @ w_ih.T
        if b_ih is not None:
            x += b_ih if ctx.bias_inside else b_ih + b_hh
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
        if dx is not dy and need[4]:
            db_hh = dy.sum(axis=0)
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
        w = ctx.xp.ascontiguousarray(w_hh.T)  # a third faster in small products
        for part in ctx.rows:
            xt = x[part]
            xt += h @ w
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
        gates = xp.empty(x.shape, x.dtype)  # of each time step, one gate after the other
        w = xp.ascontiguousarray(by_gate(w_hh.T, 4))  # small products take half the time so
        for part in ctx.rows:
            z = gates[part].reshape(4, *h.shape)
            xp.matmul(h, w, out=z)
            z += by_gate(x[part], 4)
            i, f, g, o = z
            sigmoid_in_place(z[:2], xp)
            sigmoid_in_place(o, xp)
            xp.tanh(g, out=g)
            c *= f
            c += i * g
            cells[part] = c
            xp.multiply(o, xp.tanh(c, out=bent[part]), out=out[part])
            h[...] = out[part]
        return gates, cells, bent

    def run_back(
        ctx, grad: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any, dc: Any
    ) -> tuple:
        xp, (out, gates, cells, bent) = ctx.xp, kept
        c_before, d = states_before(cells, states[1], ctx.rows, xp), xp.empty_like(gates)
        for part in reversed(ctx.rows):
            z, k = gates[part].reshape(4, *dh.shape), bent[part]
            dz = xp.empty_like(z)
            (i, f, g, o), (di, df, dg, do) = z, dz
            xp.subtract(z, xp.multiply(z, z, out=dz), out=dz)  # the slope of a sigmoid
            xp.subtract(1, xp.multiply(g, g, out=dg), out=dg)  # and of tanh
            dh += grad[part]
            do *= k
            do *= dh
            dc += (o - out[part] * k) * dh
            di *= g
            df *= c_before[part]
            dg *= i
            dz[:3] *= dc  # i, f and g act on c; o is done
            dc *= f
            by_gate(d[part], 4)[...] = dz
            dh[...] = d[part] @ w_hh
        return d, d


class GruLoop(Loop):
    """h' = (1 - z) n + z h."""

    step, bias_inside = staticmethod(gru_step), True

    def run(ctx, x: Any, w_hh: Any, b_hh: Any, out: Any, h: Any) -> tuple:
        xp, y_new = ctx.xp, ctx.xp.empty_like(out)
        w = xp.ascontiguousarray(w_hh.T)  # a third faster in small products
        for part in ctx.rows:
            xt = x[part]
            yt = h @ w
            if b_hh is not None:
                yt += b_hh
            y_new[part] = parts_of(yt, 3)[2]
            r, z, new = parts_of(xt, 3)
            x_new = new.copy()
            xt += yt
            sigmoid_in_place(xt, xp)  # of the third part too, which is overwritten next
            xp.multiply(r, y_new[part], out=new)
            new += x_new
            xp.tanh(new, out=new)
            h -= new
            h *= z
            h += new
            out[part] = h
        return x, y_new

    def run_back(ctx, g: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any) -> tuple:
        xp, (_, gates, y_new) = ctx.xp, kept
        dx, dy = xp.empty_like(gates), xp.empty_like(gates)
        for part in reversed(ctx.rows):
            (r, z, new), (dr, dz, dn) = parts_of(gates[part], 3), parts_of(dx[part], 3)
            dh += g[part]
            rest = 1 - z
            xp.multiply(dh * rest, 1 - new * new, out=dn)
            xp.multiply(dh * (before[part] - new), z * rest, out=dz)
            xp.multiply(dn * y_new[part], r - r * r, out=dr)
            dy[part] = dx[part]
            parts_of(dy[part], 3)[2][...] *= r
            dh *= z
            dh += dy[part] @ w_hh
        return dx, dy


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    rows = [slice(2 * t, 2 * t + 2) for t in range(4)]
    sizes = {TanhLoop: 3, ReluLoop: 3, LstmLoop: 12, GruLoop: 9}
    names = "input w_ih w_hh b_ih b_hh h c".split()

    def draw(gates, states):
        shapes = [(8, 2), (gates, 2), (gates, 3), (gates,), (gates,), *[(2, 3)] * states]
        return [randn(*shape, dtype=float64, requires_grad=True) for shape in shapes]

    # Each gradient of each loop, against that of `unroll`.
    for loop, gates in sizes.items():
        inputs = draw(gates, 1 + (loop is LstmLoop))
        found = []
        for run in (loop.apply, lambda *args, loop=loop: unroll(loop.step, *args)):
            outputs = run(*inputs[:5], rows, *inputs[5:])
            found.append(grad(sum(out.square().sum() for out in outputs), inputs))
        pairs = zip(names, *found, strict=False)
        wrong = [name for name, a, b in pairs if (a - b).abs().max().item() > 1e-12]
        print(loop.__name__, "wrong:", wrong)
    # -> TanhLoop wrong: []
    # -> ReluLoop wrong: []
    # -> LstmLoop wrong: []
    # -> GruLoop wrong: []

    inputs = draw(9, 1)
    without = GruLoop.apply(*inputs[:3], None, None, rows, inputs[5])[0]
    print("without biases:", without.shape)  # -> without biases: tinytorch.Size([8, 3])
    frozen = [*inputs[:4], inputs[4].detach()]
    (g,) = grad(GruLoop.apply(*frozen, rows, inputs[5])[0].sum(), inputs[3])
    print("one of them frozen:", g.shape)  # -> one of them frozen: tinytorch.Size([9])

    def all_of_it(*inputs):
        return GruLoop.apply(*inputs[:5], rows, *inputs[5:])

    print(gradcheck(all_of_it, inputs), gradgradcheck(all_of_it, inputs))  # -> True True
