"""Step cells02: LSTMCell in the package's dress

Step 56d built the LSTM: three gates, and a cell state that no matrix multiplies on its way.

    c_t = f c_(t-1) + i g          f: how much is kept, i: how much is written, g: what
    h_t = o tanh(c_t)              o: how much is shown

Here what the cells share, the two products x and y, moves to RNNCellBase; tanh_step and lstm_step
are the formulas that differ. They all take (x, y, *states) and return the new states. The run loops
will use the same formulas.

Hochreiter and Schmidhuber (1997) kept all of c, as if f were always 1; the gate f, which lets the
network forget, was added by Gers, Schmidhuber and Cummins (2000).

The trap is in the numbers it starts with: with biases near 0, f is about 1/2, and 1/2^30 is a
billionth. The gate is half closed. So start with a positive bias at f, and a larger one the longer
the memory has to last: 5 gives f = 0.993. PyTorch starts near 0, and leaves it to you.

New: tanh_step, lstm_step, RNNCellBase, LSTMCell. Changed: RNNCell, which starts from zeros now.
Try: put the bias of 5 at the gate o instead of f.
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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.nn.nll import one_hot
    from tinytorch.ops.joining import cat
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    def read(cell, x):
        """The last h."""
        state = None
        for row in x:
            state = cell(row, state)
        return state[0] if isinstance(cell, LSTMCell) else state

    def open_gate(cell):
        """Opens the forget gate: the second quarter of the rows."""
        n = cell.hidden_size
        cell.bias_ih.data[n : 2 * n] = 5.0
        return cell

    def reach(cell, length=31):
        """The size of d h_T / d x_t for each distance T - t."""
        manual_seed(0)
        x = randn(length, 20, cell.input_size, requires_grad=True)
        (g,) = grad(read(cell, x), x, randn(20, cell.hidden_size))
        return [size.item() for size in g.square().mean((1, 2)).sqrt().flip(0)]

    manual_seed(0)
    cells = {
        "RNN": RNNCell(8, 32),
        "LSTM": LSTMCell(8, 32),
        "LSTM, forget gate open": open_gate(LSTMCell(8, 32)),
    }

    def show(name):
        """Bars: each sign is a factor of 10. Returns what is left after 30 steps."""
        sizes = reach(cells[name])
        print(name)
        for distance in (0, 5, 10, 20, 30):
            share = sizes[distance] / sizes[0]
            print(f"{distance:4} {share:8.0e} " + "#" * max(0, round(12 + math.log10(share))))
        return share

    simple = show("RNN")
    # -> RNN
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    drawn = show("LSTM")
    # -> LSTM
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    opened = show("LSTM, forget gate open")
    # -> LSTM, forget gate open
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    print("more than a hundredth is left:", simple > 0.01, drawn > 0.01, opened > 0.01)
    # -> more than a hundredth is left: False False True

    # Step cells01's task: one of four symbols, then 30 steps of noise. Which one was it?
    def memory(make):
        """The share of right answers in the last ten steps of training."""
        manual_seed(2)
        cell, head, right = make(5, 16), Linear(16, 4), []
        optimizer = Adam([*cell.parameters(), *head.parameters()], lr=0.05)
        for _ in range(90):
            first = randint(0, 4, (32,))
            h = read(cell, cat([one_hot(first, 5).float()[None], randn(30, 32, 5) * 0.3]))
            optimizer.zero_grad()
            cross_entropy(head(h), first).backward()
            optimizer.step()
            right.append((head(h).argmax(1) == first).float().mean().item())
        return sum(right[-10:]) / 10

    share = memory(lambda *sizes: open_gate(LSTMCell(*sizes)))
    print(f"remembered over 30 steps: {share:.0%}")  # -> ...
    print("learned:", share > 0.9)  # -> learned: True
