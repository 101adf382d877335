"""Step rnn02: Stacked recurrent layers

The outputs of a layer are a sequence, too, and can be the input of a second one. The first may
find out what a letter is for, the second what a word is for.

    output 2    o1 -- o2 -- o3
                 |     |     |          num_layers=2: each layer has its own weights, "..._l0" and
    output 1    h1 -- h2 -- h3          "..._l1", and its own state
                 |     |     |
    input       x1    x2    x3

`output` is that of the last layer; `last` gets a row for each layer.

Between the layers there may be dropout (step layers09).

The trap is dropout inside, on the way from h1 to h2: a mask that is drawn anew at each step would
wipe out the memory after a few of them. Between the layers a number that is lost is lost for one
step only.

RNN has relu as an option, too, and all layers may be without biases.

Changed: RNNBase, RNN.
Try: leave out `if number`, so that the input is dropped, too. Which line of the demo notices?
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
from tinytorch.ops.joining import stack

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
    bias_hh_lk.

    Args:
        num_layers: the outputs of a layer are the inputs of the next one.
        dropout: between the layers, in training.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias = num_layers, bias
        self.dropout = float(dropout)
        self._all_weights = []
        for layer in range(num_layers):
            shape = (hidden_size if layer else input_size, hidden_size)
            names = f"{{}}_l{layer}"
            names = add_weights(self, names, LOOPS[mode][1], shape, bias, device, dtype)
            self._all_weights.append(names if bias else names[:2])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
        draw_uniform(self, self.hidden_size)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _run(self, data: Tensor, rows: list[slice], states: Sequence[Tensor]) -> tuple:
        """(outputs [all, ...] of the last layer, last states) of all layers."""
        last, weights = [], self.all_weights
        for number in range(len(weights)):
            if number and self.dropout:
                data = dropout(data, self.dropout, self.training)
            given = (*weights[number], None, None)[:4]
            loop = LOOPS[self.mode][0]
            data, *ends = loop.apply(data, *given, rows, *(s[number] for s in states))
            last.append(ends)
        return data, [stack(parts) for parts in zip(*last, strict=True)]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        """(output, last state) for a sequence and the state before it, zeros by default.

        Args:
            input: [time, batch, input_size].
            hx: [layers, batch, hidden_size]; of an LSTM a pair (h, c). The last state has the same
                form.

        `output` [time, batch, hidden_size] is h of the last layer after each step.
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
        usual = dict(num_layers=1, bias=True, dropout=0)
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
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    x = randn(5, 2, 4)
    net = LSTM(4, 3, num_layers=2, dropout=0.5)
    print(net)  # -> LSTM(4, 3, num_layers=2, dropout=0.5)
    output, (h, c) = net(x)
    print(output.shape, h.shape, bool((output[-1] == h[1]).all()))
    # -> tinytorch.Size([5, 2, 3]) tinytorch.Size([2, 2, 3]) True
    print(len(net.all_weights), [name for name in net.state_dict() if "weight_ih" in name])
    # -> 2 ['weight_ih_l0', 'weight_ih_l1']
    print(GRU(4, 3, bias=False), len(list(GRU(4, 3, bias=False).parameters())))
    # -> GRU(4, 3, bias=False) 2

    print(RNN(4, 3, nonlinearity="relu")(x)[0].min().item() >= 0)  # -> True
    try:
        RNN(4, 3, nonlinearity="sin")
    except ValueError as error:
        print(error)  # -> Unknown nonlinearity 'sin'. Select from 'tanh' or 'relu'.

    # Two layers are one after the other, where nothing is dropped.
    net.eval()
    lower, upper = LSTM(4, 3), LSTM(3, 3)
    state = net.state_dict()
    for part, number in ((lower, "l0"), (upper, "l1")):
        part.load_state_dict({k.replace(number, "l0"): v for k, v in state.items() if number in k})
    print((upper(lower(x)[0])[0] - net(x)[0]).abs().max().item() < 1e-6)  # -> True

    # In training, the second layer gets other inputs at each call, and the first the same.
    again, (h_again, _) = net.train()(x)
    print([bool((a == b).all()) for a, b in zip(h, h_again, strict=True)])  # -> [True, False]
