"""Recurrent layers: RNN, LSTM and GRU, over whole sequences."""

import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.dropout import dropout
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.rnn_cells import add_weights, draw_uniform
from tinytorch.nn.modules.rnn_loops import GruLoop, Loop, LstmLoop, ReluLoop, TanhLoop
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.utils.rnn import PackedSequence
from tinytorch.ops.creation import zeros
from tinytorch.ops.elementwise import opmath_type
from tinytorch.ops.gather import index_select
from tinytorch.ops.joining import cat, stack

LOOPS = {
    "RNN_TANH": (TanhLoop, 1),
    "RNN_RELU": (ReluLoop, 1),
    "LSTM": (LstmLoop, 4),
    "GRU": (GruLoop, 3),
}


def run_loop(loop: type[Loop], input: Tensor, *args: Any) -> list[Tensor]:
    """loop.apply; halves are computed as float32 and rounded once, at the end."""
    wide = opmath_type(input.dtype)
    if wide is input.dtype:
        return loop.apply(input, *args)
    args = [x.to(wide) if isinstance(x, Tensor) else x for x in (input, *args)]
    return [out.to(input.dtype) for out in loop.apply(*args)]


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

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all parameters, which some programs read to initialise a layer."""
        return [name for names in self._all_weights for name in names]

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
        # The rows of each time step follow those of the steps before it.
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
