"""Step cells01: RNNCell in the package's dress

Step 56b built the recurrent network: h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), with the
same weights at each step, and step 56c measured how far back its gradients reach. Here the cell
gets its annotations and PyTorch's names: `input`, `hx`, `reset_parameters`. The parameters are
empty at first and drawn in place, so that they can be drawn anew later. `draw_uniform` does it for
all cells and layers of the run.

The state is an argument that has to be given; step cells04 lets None stand for zeros again.

The trap: the state belongs to one text. If you forget to start from zeros, the second text is read
with the first in mind, and with its graph still attached.

PyTorch: nn.RNNCell, with two biases that do the work of one, because cuDNN has two.

New: draw_uniform. Changed: RNNCell.
Try: leave out `self.reset_parameters()` in __init__. What is in the weights then?
"""

import importlib
import math

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@no_grad()
def draw_uniform(module: Module, hidden_size: int) -> None:
    """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
    for param in module.parameters():
        param.uniform_(-bound, bound)


class RNNCell(Module):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh): one step of a simple recurrent network."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_ih = Parameter(empty(hidden_size, input_size))
        self.weight_hh = Parameter(empty(hidden_size, hidden_size))
        self.bias_ih, self.bias_hh = Parameter(empty(hidden_size)), Parameter(empty(hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_uniform(self, self.hidden_size)

    def forward(self, input: Tensor, hx: Tensor) -> Tensor:
        """[batch, input_size] and the state [batch, hidden_size] to the next state."""
        x = linear(input, self.weight_ih, self.bias_ih)
        return (x + linear(hx, self.weight_hh, self.bias_hh)).tanh()


if __name__ == "__main__":
    import copy

    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    bound = max(p.abs().max().item() for p in RNNCell(8, 16).parameters())
    print(f"weights start within 1 / sqrt(16): {0.24 < bound < 0.25}")
    # -> weights start within 1 / sqrt(16): True

    # One cell is used at each step. With a copy of it for each step, the gradients come apart:
    # that of the one cell is their sum.
    x = randn(3, 1, 8)
    cell = RNNCell(8, 16)
    copies = [copy.deepcopy(cell) for _ in x]

    def last_state(cells):
        h = zeros(1, 16)
        for cell, row in zip(cells, x, strict=False):
            h = cell(row, h)
        return h

    last_state([cell] * 3).sum().backward()
    last_state(copies).sum().backward()
    parts = [each.weight_ih.grad for each in copies]
    same = (cell.weight_ih.grad - sum(parts)).abs().max().item() < 1e-6
    print("their sum:", same)  # -> their sum: True

    # The state goes on where it was left; from zeros another text begins.
    h = cell(x[0], zeros(1, 16))
    print(
        "two steps:", (cell(x[1], h) == last_state([cell] * 2)).all().item()
    )  # -> two steps: True
    print("no memory:", (cell(x[1], zeros(1, 16)) == cell(x[1], h)).all().item())
    # -> no memory: False
