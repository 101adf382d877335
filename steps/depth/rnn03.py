"""Step rnn03: Bidirectional layers

Is "bank" a place for money or for boats? Often the words behind it tell, and a layer that reads
from left to right has not seen them yet. In the demo it has to say for each number whether it is
the largest of its row, and for most of them the row has not ended.

Where the whole text is there already, as in classification, a second loop reads it from the end to
the start, with weights of its own, "..._reverse". Both outputs stand side by side: [time, batch,
2 * hidden]. For the loop it is only another order of the same rows (step loops01).

      h1 -> h2 -> h3            output at 2: (h2 forwards, h2 backwards), it has seen all words
      x1    x2    x3
      h1 <- h2 <- h3

The trap: output[-1] is the last state forwards, but backwards it has seen one word. The state that
has read everything backwards is output[0], second half. In `last` both are right. And a model that
predicts the next word must not be bidirectional: it has read that word already.

Changed: RNNBase.
Try: use `rows` in place of rows[::-1] in _run. Both loops read forwards, and the demo notices.
"""

import importlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.dropout import dropout
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.rnn_cells import add_weights, draw_uniform
from tinytorch.nn.modules.rnn_loops import GruLoop, LstmLoop, ReluLoop, TanhLoop
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import zeros
from tinytorch.ops.joining import cat, stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


LOOPS = {
    "RNN_TANH": (TanhLoop, 1),
    "RNN_RELU": (ReluLoop, 1),
    "LSTM": (LstmLoop, 4),
    "GRU": (GruLoop, 3),
}


class RNNBase(Module):
    """What RNN, LSTM and GRU have in common: for layer k weight_ih_lk, weight_hh_lk, bias_ih_lk and
    bias_hh_lk, and for the direction from the end to the start the same with _reverse.

    Args:
        num_layers: the outputs of a layer are the inputs of the next one.
        dropout: between the layers, in training.
        bidirectional: a second pass from the end to the start; the outputs stand side by side.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias = num_layers, bias
        self.dropout, self.bidirectional = float(dropout), bidirectional
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
                loop = LOOPS[self.mode][0]
                out, *ends = loop.apply(data, *given, order, *(s[k] for s in states))
                outs.append(out)
                last.append(ends)
            data = outs[0] if directions == 1 else cat(outs, 1)
        return data, [stack(parts) for parts in zip(*last, strict=True)]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        """(output, last state) for a sequence and the state before it, zeros by default.

        Args:
            input: [time, batch, input_size].
            hx: [layers * directions, batch, hidden_size]; of an LSTM a pair (h, c). The last state
                has the same form.

        `output` [time, batch, directions * hidden_size] is h of the last layer after each step.
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
        usual = dict(num_layers=1, bias=True, dropout=0, bidirectional=False)
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


if __name__ == "__main__":
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed, rand, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    x = randn(5, 2, 4)
    net = LSTM(4, 3, num_layers=2, bidirectional=True)
    print(net)  # -> LSTM(4, 3, num_layers=2, bidirectional=True)
    output, (h, c) = net(x)
    print(output.shape, h.shape)  # -> tinytorch.Size([5, 2, 6]) tinytorch.Size([4, 2, 3])
    print(len(net.all_weights), [name for name in net.state_dict() if "weight_ih" in name])
    # -> 4 ['weight_ih_l0', 'weight_ih_l0_reverse', 'weight_ih_l1', 'weight_ih_l1_reverse']

    # Where the last states are, in the outputs.
    forwards, backwards = (
        bool((h[2] == output[-1, :, :3]).all()),
        bool((h[3] == output[0, :, 3:]).all()),
    )
    print(forwards, backwards, bool((h[3] == output[-1, :, 3:]).any()))  # -> True True False

    # Is this number the largest of its row? That takes both directions.
    def share_right(**options):
        """The share of right answers after training."""
        manual_seed(0)
        net = GRU(1, 16, **options)
        head = Linear(16 * (1 + net.bidirectional), 2)
        optimizer = Adam([*net.parameters(), *head.parameters()], lr=0.02)
        for _ in range(120):
            numbers = rand(6, 64, 1)
            target = (numbers == numbers.amax(0)).long().flatten()
            scores = head(net(numbers)[0].flatten(0, 1))
            optimizer.zero_grad()
            cross_entropy(scores, target).backward()
            optimizer.step()
        return (scores.argmax(1) == target).float().mean().item()

    one, both = share_right(), share_right(bidirectional=True)
    print(f"one direction {one:.0%}, both {both:.0%}")  # -> ...
    print("both is better:", both > one + 0.01)  # -> both is better: True
