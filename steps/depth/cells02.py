"""Step cells02: Gradients through time vanish

How far back does the memory of step cells01 reach? Ask the gradient: by how much does the last
state change, if the word at distance d changes a little?

    dh_T/dh_(T-d) = product over d steps of  diag(1 - h_t^2) W_hh

A product of d matrices. If they shrink vectors, on average by a factor 0.6, then over 30 steps
0.6^30 is left, two parts in ten million: the gradients vanish, and what is learned comes from the
last few words. With larger weights they grow from step to step instead: they explode. (tanh damps
this a little: where it is flat, 1 - h^2 is nearly 0.) Thirty layers had the same problem in step
init07, but there each layer could have its own scale. Here it is one matrix, again and again, and
in the long run only its largest eigenvalue counts.

Clipping helps against exploding gradients (step optimizer06), but not against vanishing ones: what
is 0 cannot be made longer. A recurrent matrix that turns vectors without stretching them, an
orthogonal one, postpones the problem.

The demo measures this by distance, in bars, and then asks the network to remember one symbol over
3 steps, and over 30.

Changed: nothing. New: nothing in the framework; this step measures.
Try: multiply the recurrent weights by 4 instead of 2. Now the gradients explode.
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
    from tinytorch.autograd.backward import grad
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.init import orthogonal_
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.joining import cat
    from tinytorch.ops.nll import one_hot
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    def reach(cell, length=31):
        """The size of d h_T / d x_t for each distance T - t."""
        manual_seed(0)
        x = randn(length, 20, cell.input_size, requires_grad=True)
        h = zeros(20, cell.hidden_size)
        for row in x:
            h = cell(row, h)
        (g,) = grad(h, x, randn(20, cell.hidden_size))
        return [size.item() for size in g.square().mean((1, 2)).sqrt().flip(0)]

    def show(name, sizes):
        """Bars: each sign is a factor of 10 above a millionth of a millionth of the first one."""
        print(name)
        for distance in (0, 5, 10, 20, 30):
            share = sizes[distance] / sizes[0]
            print(f"{distance:4} {share:8.0e} " + "#" * max(0, round(12 + math.log10(share))))

    manual_seed(0)
    cell = RNNCell(8, 32)
    start = reach(cell)
    show("as drawn", start)
    # -> as drawn
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    print("at 30 steps less than a millionth:", start[30] < 1e-6 * start[0])
    # -> at 30 steps less than a millionth: True

    cell.weight_hh.data *= 2
    show("twice the recurrent weights", reach(cell))
    # -> twice the recurrent weights
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    orthogonal_(cell.weight_hh)
    turned = reach(cell)
    show("orthogonal", turned)
    # -> orthogonal
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    # -> ...
    print("farther than as drawn:", turned[20] / turned[0] > 1000 * start[20] / start[0])
    # -> farther than as drawn: True

    # One of four symbols, then nothing but noise: which one was it?
    def memory(distance):
        """The share of right answers in the last ten steps of training."""
        manual_seed(2)
        cell, head, right = RNNCell(5, 16), Linear(16, 4), []
        optimizer = Adam([*cell.parameters(), *head.parameters()], lr=0.05)
        for _ in range(150):
            first = randint(0, 4, (32,))
            x = cat([one_hot(first, 5).float()[None], randn(distance, 32, 5) * 0.3])
            h = zeros(32, 16)
            for row in x:
                h = cell(row, h)
            optimizer.zero_grad()
            cross_entropy(head(h), first).backward()
            optimizer.step()
            right.append((head(h).argmax(1) == first).float().mean().item())
        return sum(right[-10:]) / 10

    short, long = memory(3), memory(30)
    print(f"remembered over 3 steps: {short:.0%}, over 30: {long:.0%}")  # -> ...
    print("it learns the near one, and not the far one:", short > 0.9, long < 0.75)
    # -> it learns the near one, and not the far one: True True
