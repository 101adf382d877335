"""Step loops01: The inputs of all time steps in one product

A cell computes W_ih x_t and W_hh h_(t-1) at each step. The second has to wait for the step before.
The first does not: all x_t are known. Sixty-four products of 32 rows each are one product of 2,048
rows, and a large product is faster than many small ones: each number of W_ih that is read from
memory is used for more rows. This step changes only how fast it is, not what is computed.

    x = linear(all rows, W_ih, b_ih)                     once
    for each t:  h = step(x[rows of t], linear(h, W_hh, b_hh), h)

So the input of a whole layer is a matrix [time * batch, size], and `rows` says which rows belong
to which time step. (The product is cut by one split: a slice for each step would be right, too,
but the gradient of each slice is a matrix of zeros with a few rows in it, all of which have to be
added.) That list is the order of the loop, too: reversed, the layer reads backwards, and the
outputs still stand at their own places.

The trap in measuring: sixty-four small operations have their own overhead. Here it is part of the
gain; on a GPU, where each operation is a launch, it is most of it.

PyTorch does the same in its own loop, and cuDNN in its kernels.

New: unroll.
Try: give the rows in a random order. Nothing fails. It is another network.
"""

import importlib
from collections.abc import Callable, Sequence
from operator import attrgetter

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import linear
from tinytorch.ops.joining import cat

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
        rows: for each time step, in the order of the loop, which rows are its own.
        states: [batch, hidden] each.
    """
    order = sorted(rows, key=attrgetter("start"))  # as they stand in `input`
    x = linear(input, w_ih, b_ih).split([part.stop - part.start for part in order])
    pieces = {part.start: piece for part, piece in zip(order, x, strict=True)}
    for part in rows:
        states = step(pieces[part.start], linear(states[0], w_hh, b_hh), *states)
        pieces[part.start] = states[0]  # the output takes the place of the input
    return (cat([pieces[part.start] for part in order]), *states)


if __name__ == "__main__":
    import math
    import timeit

    from tinytorch.autograd.backward import grad
    from tinytorch.nn.modules.rnn_cells import LSTMCell, lstm_step
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    manual_seed(0)
    time, batch, size, hidden = 64, 32, 128, 128
    x, cell = randn(time, batch, size), LSTMCell(size, hidden)
    rows = [slice(batch * t, batch * (t + 1)) for t in range(time)]
    start = zeros(batch, hidden)

    def one_by_one():
        states, outputs = (start, start), []
        for row in x:
            states = cell(row, states)
            outputs.append(states[0])
        return cat(outputs)

    def all_at_once(rows=rows):
        return unroll(lstm_step, x.flatten(0, 1), *cell.parameters(), rows, start, start)[0]

    same = (one_by_one() - all_at_once()).abs().max().item() < 1e-6
    print("the same:", same, all_at_once().shape)  # -> the same: True tinytorch.Size([2048, 128])

    def times(*programs):
        """The seconds of each program, forwards and backwards: the best of three, in turn."""
        best = [math.inf] * len(programs)
        for _ in range(3):
            for i, program in enumerate(programs):
                best[i] = min(
                    best[i], timeit.timeit(lambda p=program: p().sum().backward(), number=1)
                )
        return best

    alone, together = times(one_by_one, all_at_once)
    print(f"together it takes {together / alone:.2f} of the time")  # -> ...

    # Read backwards: the output at the first place has seen everything.
    backwards = all_at_once(rows[::-1])
    (g,) = grad(backwards[rows[0]].sum(), cell.weight_ih)
    print("another reading:", bool((backwards != all_at_once()).any()), g.shape)
    # -> another reading: True tinytorch.Size([512, 128])
