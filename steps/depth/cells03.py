"""Step cells03: The GRU: one state, one gate to keep and to write

An LSTM has two memories and four products. Cho et al. (2014) managed with one and three:

    h_t = (1 - z) n + z h_(t-1)           z: how much is kept; what is not kept is written
    n   = tanh(x_n + r y_n)               r: how much of the old state the new one sees

Keeping and writing share one gate, so h stays between -1 and 1, and where z is near 1 the memory
passes unchanged. (The code writes h_t as n + z (h_(t-1) - n): the same, with one product.) In
practice the two learn about equally well; the GRU has a quarter fewer weights.

The trap is in r: it multiplies y_n = W_hn h + b_hn after the product, with its bias. The paper has
W (r h) instead. It is no better, and r would have to be known before the product, so the three
products could not be one. PyTorch and cuDNN do as here, and saved weights only fit this form.

New: gru_step, GRUCell.
Try: in gru_step swap h and n in the last line. The GRU that should keep everything forgets it.
"""

import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty, zeros

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def tanh_step(x: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = tanh(x + y)."""
    return ((x + y).tanh(),)


def lstm_step(x: Tensor, y: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g and h' = o tanh(c'), with the gates i, f, o = sigmoid and g = tanh of the
    quarters of x + y, in the order i, f, g, o (Hochreiter and Schmidhuber, 1997; f: 2000)."""
    i, f, g, o = (x + y).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(x: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = (1 - z) n + z h, with r, z = sigmoid(x + y) and n = tanh(x + r y) of the thirds, in the
    order r, z, n (Cho et al., 2014)."""
    (x_r, x_z, x_n), (y_r, y_z, y_n) = x.chunk(3, -1), y.chunk(3, -1)
    n = (x_n + (x_r + y_r).sigmoid() * y_n).tanh()
    return (n + (x_z + y_z).sigmoid() * (h - n),)


@no_grad()
def draw_uniform(module: Module, hidden_size: int) -> None:
    """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
    for param in module.parameters():
        param.uniform_(-bound, bound)


class RNNCellBase(Module):
    """What the cells have in common: weight_ih, weight_hh, bias_ih and bias_hh."""

    def __init__(self, input_size, hidden_size, num_chunks):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size))
        self.weight_hh = Parameter(empty(rows, hidden_size))
        self.bias_ih, self.bias_hh = Parameter(empty(rows)), Parameter(empty(rows))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_uniform(self, self.hidden_size)

    def _step(self, formula: Callable, input: Tensor, *states: Tensor | None) -> tuple:
        """The next state."""
        if states[0] is None:
            start = zeros(len(input), self.hidden_size, dtype=input.dtype, device=input.device)
            states = [start] * len(states)
        x = linear(input, self.weight_ih, self.bias_ih)
        y = linear(states[0], self.weight_hh, self.bias_hh)
        return formula(x, y, *states)


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh): one step of a simple recurrent network."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, 1)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """[batch, input_size] and the state [batch, hidden_size] to the next state."""
        return self._step(tanh_step, input, hx)[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: see lstm_step."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, 4)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """[batch, input_size], and (h, c), to the next (h, c)."""
        return self._step(lstm_step, input, *((None, None) if hx is None else hx))


class GRUCell(RNNCellBase):
    """One step of a GRU: see gru_step."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, 3)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """[batch, input_size] and the state to the next state."""
        return self._step(gru_step, input, hx)[0]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.nn.nll import one_hot
    from tinytorch.ops.joining import cat
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    for cell in (RNNCell(8, 32), LSTMCell(8, 32), GRUCell(8, 32)):
        print(type(cell).__name__, sum(p.numel() for p in cell.parameters()))
    # -> RNNCell 1344
    # -> LSTMCell 5376
    # -> GRUCell 4032

    # A GRU that keeps everything, and one that keeps nothing.
    cell, x, h = GRUCell(2, 3), randn(1, 2), tensor([[0.5, -0.5, 0.1]])
    cell.bias_ih.data[3:6] = 100.0
    print([round(v, 4) for v in cell(x, h)[0].tolist()])  # -> [0.5, -0.5, 0.1]
    cell.bias_ih.data[3:6] = -100.0
    print("overwritten:", (cell(x, h) - h).abs().min().item() > 0.01)  # -> overwritten: True

    # A single text of size 2 is taken for two texts. Step cells04 mends that.
    print(cell(randn(2)).shape)  # -> tinytorch.Size([2, 3])

    # Step cells01's task once more: one of four symbols, then 30 steps of noise. z starts near 1,
    # as the forget gate of the LSTM did in step cells02.
    cell, head = GRUCell(5, 16), Linear(16, 4)
    cell.bias_ih.data[16:32] = 3.0
    optimizer = Adam([*cell.parameters(), *head.parameters()], lr=0.05)
    for _ in range(80):
        first, h = randint(0, 4, (32,)), None
        for row in cat([one_hot(first, 5).float()[None], randn(30, 32, 5) * 0.3]):
            h = cell(row, h)
        optimizer.zero_grad()
        cross_entropy(head(h), first).backward()
        optimizer.step()
    print("learned:", (head(h).argmax(1) == first).float().mean().item() > 0.9)  # -> learned: True
