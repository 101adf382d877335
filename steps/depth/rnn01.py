"""Step rnn01: Recurrent layers in the package's dress

In step 56e a loop of the program calls the cell for each letter. A layer is the loop: a whole text
goes in, [time, batch, size], and out come two things.

    output, last = layer(x)        output: h after each step, [time, batch, hidden]
                                   last: the state behind the last step, of an LSTM (h, c)

A classifier uses the last state, a model that predicts the next letter uses all outputs. And
`last` is what the next piece of a long text begins with: layer(next_x, last).

The trap comes with that: `last` is part of a graph. If you hand it to the next piece as it is,
backward goes through all pieces since the start, whose graph the last backward has freed: "Trying
to backward through the graph a second time". last.detach() keeps the memory and drops its history
(truncated backpropagation through time).

The names of the weights are PyTorch's, "weight_ih_l0" for layer 0, so that saved states fit. They
are drawn in PyTorch's order. `last` has a dimension in front for the layers that the next step
adds. `rows` are the slices of step loops01, one for each time step.

New: LOOPS, RNNBase, RNN, LSTM, GRU.
Try: leave out the detach in the demo.
"""

import importlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.rnn_cells import add_weights, draw_uniform
from tinytorch.nn.modules.rnn_loops import GruLoop, LstmLoop, TanhLoop
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import zeros
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


LOOPS = {"RNN_TANH": (TanhLoop, 1), "LSTM": (LstmLoop, 4), "GRU": (GruLoop, 3)}


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: weight_ih_l0, weight_hh_l0, bias_ih_l0 and
    bias_hh_l0."""

    def __init__(self, mode: str, input_size: int, hidden_size: int, device=None, dtype=None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self._all_weights = []
        shape = (input_size, hidden_size)
        names = add_weights(self, "{}_l0", LOOPS[mode][1], shape, True, device, dtype)
        self._all_weights.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
        draw_uniform(self, self.hidden_size)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _run(self, data: Tensor, rows: list[slice], states: Sequence[Tensor]) -> tuple:
        """(outputs [all, ...], last states)."""
        loop, given = LOOPS[self.mode][0], self.all_weights[0]
        out, *ends = loop.apply(data, *given, rows, *(s[0] for s in states))
        return out, [stack([end]) for end in ends]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        """(output, last state) for a sequence and the state before it, zeros by default.

        Args:
            input: [time, batch, input_size].
            hx: [1, batch, hidden_size]; of an LSTM a pair (h, c). The last state has the same form.

        `output` [time, batch, hidden_size] is h after each step.
        """
        states = None if hx is None else list(hx) if self.mode == "LSTM" else [hx]
        sizes = [input.array.shape[1]] * input.array.shape[0]
        data = input.flatten(0, 1)
        shape = (len(self._all_weights), sizes[0], self.hidden_size)
        if states is None:
            start = zeros(shape, dtype=data.dtype, device=data.device)
            states = [start, start] if self.mode == "LSTM" else [start]
        # The rows of each time step follow those of the steps before it.
        ends = list(accumulate(sizes))
        rows = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
        out, last = self._run(data, rows, states)
        out = out.reshape(len(sizes), sizes[0], out.array.shape[1])
        return out, tuple(last) if self.mode == "LSTM" else last[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNN(RNNBase):
    """A simple recurrent network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("RNN_TANH", *args, **options)


class LSTM(RNNBase):
    """Long short-term memory: see lstm_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("LSTM", *args, **options)


class GRU(RNNBase):
    """Gated recurrent units: see gru_step."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__("GRU", *args, **options)


if __name__ == "__main__":
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.creation import arange
    from tinytorch.ops.joining import cat
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    x = randn(5, 2, 4)
    for layer in (RNN(4, 3), LSTM(4, 3), GRU(4, 3)):
        output, last = layer(x)
        h = last[0] if isinstance(last, tuple) else last
        print(layer, output.shape, h.shape, bool((output[-1] == h[0]).all()))
    # -> RNN(4, 3) tinytorch.Size([5, 2, 3]) tinytorch.Size([1, 2, 3]) True
    # -> LSTM(4, 3) tinytorch.Size([5, 2, 3]) tinytorch.Size([1, 2, 3]) True
    # -> GRU(4, 3) tinytorch.Size([5, 2, 3]) tinytorch.Size([1, 2, 3]) True
    print(list(layer.state_dict()))
    # -> ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']

    # A text in two pieces.
    layer = LSTM(4, 3)
    whole, _ = layer(x)
    first, state = layer(x[:2])
    second, _ = layer(x[2:], state)
    print("in two pieces:", (cat([first, second]) - whole).abs().max().item() < 1e-6)
    # -> in two pieces: True

    # A long signal, in pieces: the sum of two waves, of which the next value is to be predicted.
    manual_seed(0)
    t = arange(0, 1201).float()
    wave = ((t * 0.2).sin() + (t * 0.31).sin())[:, None, None] / 2
    layer, head = GRU(1, 24), Linear(24, 1)
    optimizer = Adam([*layer.parameters(), *head.parameters()], lr=0.01)
    for epoch in range(6):
        state, losses = None, []
        for start in range(0, 1200, 40):
            output, state = layer(wave[start : start + 40], state)
            state = state.detach()
            loss = mse_loss(head(output), wave[start + 1 : start + 41])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")  # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    print("learned:", sum(losses) / len(losses) < 0.01)  # -> learned: True
