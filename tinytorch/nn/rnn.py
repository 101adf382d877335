"""Recurrent layers: RNN, LSTM and GRU, over whole sequences."""

import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tinytorch.autograd.engine import grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float32
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.nn.dropout import dropout
from tinytorch.nn.linear import linear
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.rnn_cells import (
    add_weights,
    draw_uniform,
    gru_step,
    lstm_step,
    relu_step,
    tanh_step,
)
from tinytorch.nn.utils.rnn import PackedSequence
from tinytorch.ops.creation import zeros
from tinytorch.ops.gather import index_select
from tinytorch.ops.joining import cat, stack


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
        rows: for each time step, in the order of the loop, which rows are its own. They may become
            fewer, or more: the first sequences of the batch are those that take part.
        states: [batch, hidden] each.
    """
    x, outputs = linear(input, w_ih, b_ih), {}
    for part in rows:
        n = part.stop - part.start
        now = [s[:n] for s in states]
        new = step(x[part], linear(now[0], w_hh, b_hh), *now)
        states = [cat([a, s[n:]]) if n < len(s) else a for a, s in zip(new, states, strict=True)]
        outputs[part.start] = new[0]
    return (cat([outputs[start] for start in sorted(outputs)]), *states)


def states_before(values: Any, first: Any, rows: Sequence[slice], xp: Any) -> Any:
    """The state before each time step, from those after it: row for row, [all, hidden]."""
    before, now = xp.empty_like(values), first.copy()
    for part in rows:
        n = part.stop - part.start
        before[part] = now[:n]
        now[:n] = values[part]
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

        run(x, w_hh, b_hh, out, *states)     fills `out`, changes the states; what is to be kept
        run_back(g, kept, *states)           gradients of x and y (the products) and of the states

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
        return (out, *last)

    def backward(ctx, g: Any, *g_states: Any) -> tuple:
        input, w_ih, w_hh, _, _, *rest = ctx.saved
        n = len(g_states)
        need = ctx.needs_input_grad
        states, kept = rest[:n], rest[n:]
        before = states_before(kept[0], states[0], ctx.rows, ctx.xp)
        g_states = [s.copy() for s in g_states]
        dx, dy = ctx.run_back(g, w_hh, before, kept, states, *g_states)
        db_ih = db_hh = dx.sum(axis=0) if need[3] else None
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
        n = 5 + len(grads) - 1
        inputs = [ctx.saved_tensor(number) for number in range(n)]
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
            xt += h[: len(xt)] @ w_hh.T
            h[: len(xt)] = ctx.bend(xt, out[part])
        return ()

    def run_back(ctx, g: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any) -> tuple:
        d = ctx.slope(kept[0])
        for part in reversed(ctx.rows):
            dt = d[part]
            dh[: len(dt)] += g[part]
            dt *= dh[: len(dt)]
            dh[: len(dt)] = dt @ w_hh
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
        w = xp.ascontiguousarray(w_hh.T)  # a third faster in small products
        for part in ctx.rows:
            xt = x[part]
            n = len(xt)
            xt += h[:n] @ w
            i, f, g, o = parts_of(xt, 4)
            bend = xp.tanh(g)
            sigmoid_in_place(xt, xp)  # of g too: one long row is faster than two short ones
            g[...] = bend
            ct = c[:n]
            ct *= f
            ct += i * g
            cells[part] = ct
            xp.multiply(o, xp.tanh(ct, out=bent[part]), out=out[part])
            h[:n] = out[part]
        return x, cells, bent

    def run_back(
        ctx, grad: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any, dc: Any
    ) -> tuple:
        xp, (out, gates, cells, bent) = ctx.xp, kept
        c_before, d = states_before(cells, states[1], ctx.rows, xp), xp.empty_like(gates)
        for part in reversed(ctx.rows):
            xt, dt, k = gates[part], d[part], bent[part]
            n = len(xt)
            (i, f, g, o), (di, df, dg, do) = parts_of(xt, 4), parts_of(dt, 4)
            dht, dct = dh[:n], dc[:n]
            xp.subtract(xt, xp.multiply(xt, xt, out=dt), out=dt)  # the slope of a sigmoid
            xp.subtract(1, xp.multiply(g, g, out=dg), out=dg)  # and of tanh
            dht += grad[part]
            do *= k
            do *= dht
            dct += (o - out[part] * k) * dht
            di *= g
            df *= c_before[part]
            dg *= i
            dt.reshape(n, 4, -1)[:, :3] *= dct[:, None]
            dct *= f
            dht[...] = dt @ w_hh
        return d, d


class GruLoop(Loop):
    """h' = (1 - z) n + z h."""

    step, bias_inside = staticmethod(gru_step), True

    def run(ctx, x: Any, w_hh: Any, b_hh: Any, out: Any, h: Any) -> tuple:
        xp, y_new = ctx.xp, ctx.xp.empty_like(out)
        for part in ctx.rows:
            xt = x[part]
            n = len(xt)
            yt, ht = h[:n] @ w_hh.T, h[:n]
            if b_hh is not None:
                yt += b_hh
            y_new[part] = parts_of(yt, 3)[2]
            r, z, new = parts_of(xt, 3)
            x_new = new.copy()
            xt += yt
            sigmoid_in_place(xt, xp)
            xp.multiply(r, y_new[part], out=new)
            new += x_new
            xp.tanh(new, out=new)
            ht -= new
            ht *= z
            ht += new
            out[part] = ht
        return x, y_new

    def run_back(ctx, g: Any, w_hh: Any, before: Any, kept: Any, states: Any, dh: Any) -> tuple:
        xp, (_, gates, y_new) = ctx.xp, kept
        dx, dy = xp.empty_like(gates), xp.empty_like(gates)
        for part in reversed(ctx.rows):
            (r, z, new), (dr, dz, dn) = parts_of(gates[part], 3), parts_of(dx[part], 3)
            dht = dh[: len(r)]
            dht += g[part]
            rest = 1 - z
            xp.multiply(dht * rest, 1 - new * new, out=dn)
            xp.multiply(dht * (before[part] - new), z * rest, out=dz)
            xp.multiply(dn * y_new[part], r - r * r, out=dr)
            dy[part] = dx[part]
            parts_of(dy[part], 3)[2][...] *= r
            dht *= z
            dht += dy[part] @ w_hh
        return dx, dy


LOOPS = {
    "RNN_TANH": (TanhLoop, 1),
    "RNN_RELU": (ReluLoop, 1),
    "LSTM": (LstmLoop, 4),
    "GRU": (GruLoop, 3),
}


def run_loop(loop: type[Loop], input: Tensor, *args: Any) -> list[Tensor]:
    """loop.apply; halves are computed as float32 and rounded once, at the end."""
    dtype = input.dtype
    if dtype.itemsize != 2:
        return loop.apply(input, *args)
    args = [x.to(float32) if isinstance(x, Tensor) else x for x in (input, *args)]
    return [out.to(dtype) for out in loop.apply(*args)]


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: for layer k weight_ih_lk, weight_hh_lk, bias_ih_lk and
    bias_hh_lk, and for the direction from the end to the start the same with _reverse.

    Args:
        num_layers: the outputs of a layer are the inputs of the next one.
        batch_first: input and output are [batch, time, size], else [time, batch, size].
        dropout: between the layers, in training.
        bidirectional: a second pass from the end to the start; the outputs stand side by side.
        proj_size: not supported: 0.
    Raises:
        ValueError, TypeError: an argument is not possible.
        NotImplementedError: proj_size is not 0.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1]")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout is between layers: it does nothing with num_layers=1", stacklevel=3
            )
        flags, sizes = (bias, batch_first), (input_size, hidden_size, num_layers)
        if any(not isinstance(f, bool) for f in flags) or any(
            not isinstance(n, int) for n in sizes
        ):
            raise TypeError(f"bias and batch_first are bools, sizes are ints, not {flags}, {sizes}")
        if min(sizes) <= 0:
            raise ValueError(f"input_size, hidden_size and num_layers must be positive: {sizes}")
        if proj_size:
            raise NotImplementedError("proj_size is not supported: put a Linear behind the layer")
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, 0
        self._all_weights = []
        for layer in range(num_layers):
            size = hidden_size * (1 + bidirectional) if layer else input_size
            for end in ("", "_reverse")[: 1 + bidirectional]:
                names, shape = f"{{}}_l{layer}{end}", (size, hidden_size)
                names = add_weights(self, names, LOOPS[mode][1], shape, bias, device, dtype)
                self._all_weights.append(names if bias else names[:2])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
        draw_uniform(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Does nothing: PyTorch puts the parameters side by side for cuDNN here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _run(self, data: Tensor, rows: list[slice], states: Sequence[Tensor]) -> tuple:
        """(outputs [all, ...] of the last layer, last states) of all layers and directions."""
        last, weights = [], self.all_weights
        directions = 1 + self.bidirectional
        for number in range(0, len(weights), directions):
            if number and self.dropout:
                data = dropout(data, self.dropout, self.training)
            outs = []
            for k in range(number, number + directions):
                order = rows if k == number else rows[::-1]
                given = (*weights[k], None, None)[:4]
                out, *ends = run_loop(
                    LOOPS[self.mode][0], data, *given, order, *(s[k] for s in states)
                )
                outs.append(out)
                last.append(ends)
            data = outs[0] if directions == 1 else cat(outs, 1)
        return data, [stack(parts) for parts in zip(*last, strict=True)]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        """(output, last state) for a sequence and the state before it, zeros by default.

        Args:
            input: [time, batch, input_size]; [batch, time, input_size] with batch_first;
                [time, input_size]; or a PackedSequence.
            hx: [layers * directions, batch, hidden_size], without batch if the input has none; of
                an LSTM a pair (h, c). The last state has the same form.

        `output` [time, batch, directions * hidden_size] is h of the last layer after each step.
        Raises:
            RuntimeError, ValueError: shapes or types do not fit.
        """
        states = None if hx is None else list(hx) if self.mode == "LSTM" else [hx]
        data, order, back, ndim = input, None, None, 2
        if isinstance(input, PackedSequence):
            data, sizes, order, back = input
            sizes = sizes.tolist()
        else:
            ndim = data.array.ndim
            if ndim not in (2, 3):
                raise ValueError(
                    f"{type(self).__name__}: Expected input to be 2D or 3D, got {ndim}D"
                )
            if states is not None and any(s.array.ndim != ndim for s in states):
                raise RuntimeError(f"For {ndim}-D input, hx should also be {ndim}-D")
            if ndim == 2:
                data = data.unsqueeze(1)
                states = None if states is None else [s.unsqueeze(1) for s in states]
            elif self.batch_first:
                data = data.transpose(0, 1)
            sizes = [data.array.shape[1]] * data.array.shape[0]
            data = data.flatten(0, 1)
        self._check_input(data)
        if not sizes:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        shape = (len(self._all_weights), sizes[0], self.hidden_size)
        if states is None:
            start = zeros(shape, dtype=data.dtype, device=data.device)
            states = [start, start] if self.mode == "LSTM" else [start]
        elif any(s.shape != shape or s.dtype is not data.dtype for s in states):
            found = [f"{list(s.shape)} of {s.dtype}" for s in states]
            raise RuntimeError(f"Expected hidden size {shape} of {data.dtype}, got {found}")
        if order is not None:
            states = [index_select(s, 1, order) for s in states]
        ends = list(accumulate(sizes))
        rows = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
        out, last = self._run(data, rows, states)
        if isinstance(input, PackedSequence):
            out = PackedSequence(out, *input[1:])
            last = last if back is None else [index_select(s, 1, back) for s in last]
        elif ndim == 2:
            last = [s.squeeze(1) for s in last]
        else:
            out = out.reshape(len(sizes), sizes[0], out.array.shape[1])
            out = out.transpose(0, 1) if self.batch_first else out
        return out, tuple(last) if self.mode == "LSTM" else last[0]

    def _check_input(self, data: Tensor) -> None:
        """Raises ValueError for another type than that of the weights, RuntimeError for another
        shape than [all, input_size]."""
        weight = self.weight_ih_l0
        if data.dtype is not weight.dtype:
            raise ValueError(
                f"RNN input dtype ({data.dtype}) does not match weight ({weight.dtype})"
            )
        if data.array.ndim != 2 or data.array.shape[1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{list(data.shape)}"
            )

    def extra_repr(self) -> str:
        usual = dict(num_layers=1, bias=True, batch_first=False, dropout=0, bidirectional=False)
        shown = [f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return f"{self.input_size}, {self.hidden_size}" + "".join(shown)


class RNN(RNNBase):
    """A simple recurrent network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    def __init__(
        self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **options
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, *args, **options)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory: see lstm_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("LSTM", *args, **options)


class GRU(RNNBase):
    """Gated recurrent units: see gru_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("GRU", *args, **options)
