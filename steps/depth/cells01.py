"""Step cells01: A network with a memory

"dog bites man" and "man bites dog" are the same bag of words (step embedding04), and not the same
news. A network that reads word after word, as we do, needs a memory: a vector h, the hidden state.
Each word changes it.

    h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)          the same weights at every step

          x_1      x_2      x_3
           |        |        |
    h_0 - h_1 ---- h_2 ---- h_3 --- what was read          drawn like this it is "unrolled"

Unrolled, it is a network as deep as the text is long, and all its layers share their weights. So
nothing new is needed for the gradient: backward goes through the graph from the last step to the
first, and at each step adds to the gradients of the same four parameters. It is called
backpropagation through time, and here it works by itself.

The trap: the state belongs to one text. If you forget to start from zeros, the second text is read
with the first in mind, and with its graph still attached.

PyTorch: nn.RNNCell, with two biases that do the work of one, because cuDNN has two.

New: draw_uniform, RNNCell.
Try: give the cell zeros(len(words), 16) instead of h at every step. The memory is gone.
"""

import importlib
import math

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.linear import linear
from tinytorch.nn.module import Module
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

    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.embedding import Embedding
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, rand, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    def examples(n):
        """n rows with a 1, a 2 and four 0 in any order. And the answers: does the 1 come first?"""
        order = rand(n, 6).argsort(1)
        place_of_1, place_of_2 = ((order == k).float().argmax(1) for k in (1, 2))
        return order * (order < 3), place_of_1 < place_of_2

    manual_seed(0)
    print(examples(3))  # -> ...
    layers = {
        "table": Embedding(3, 8),
        "bag": Linear(8, 2),
        "cell": RNNCell(8, 16),
        "head": Linear(16, 2),
    }

    def bag(words):
        return layers["bag"](layers["table"](words).mean(1))

    def recurrent(words):
        h = zeros(len(words), 16)
        for row in layers["table"](words).unbind(1):
            h = layers["cell"](row, h)
        return layers["head"](h)

    def train(model):
        """The share of new examples that the model answers correctly after training."""
        manual_seed(1)
        optimizer = Adam([p for layer in layers.values() for p in layer.parameters()], lr=0.01)
        for _ in range(150):
            words, target = examples(64)
            optimizer.zero_grad()
            cross_entropy(model(words), target.long()).backward()
            optimizer.step()
        words, target = examples(1000)
        return (model(words).argmax(1) == target.long()).float().mean().item()

    print(f"the bag guesses: {0.4 < train(bag) < 0.6}")  # -> the bag guesses: True
    print(f"with a memory: more than 95 %: {train(recurrent) > 0.95}")
    # -> with a memory: more than 95 %: True

    # One cell is used at each step. With a copy of it for each step, the gradients come apart:
    # that of the one cell is their sum.
    x = randn(3, 1, 8)
    cell = RNNCell(8, 16)
    copies = [copy.deepcopy(cell) for _ in x]

    def last_state(cells):
        h = zeros(1, 16)
        for cell, row in zip(cells, x, strict=True):
            h = cell(row, h)
        return h

    last_state([cell] * 3).sum().backward()
    last_state(copies).sum().backward()
    parts = [each.weight_ih.grad for each in copies]
    print("lengths:", [round(part.norm().item(), 2) for part in parts])  # -> ...
    same = (cell.weight_ih.grad - sum(parts)).abs().max().item() < 1e-6
    print("their sum:", same)  # -> their sum: True
    print(
        "between -1 and 1:", last_state(copies).abs().max().item() < 1
    )  # -> between -1 and 1: True

    bound = max(p.abs().max().item() for p in RNNCell(8, 16).parameters())
    print(f"weights start within 1 / sqrt(16): {0.24 < bound < 0.25}")
    # -> weights start within 1 / sqrt(16): True
