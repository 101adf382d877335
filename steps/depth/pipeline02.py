"""Step pipeline02: The batch in parts: the bubble, measured

Step 97a has the formula. With p processes and m parts each works m times and waits p - 1 times,
forward and backward:

    bubble = (p - 1) / (m + p - 1)          4 processes: 75 % with 1 part, 27 % with 8, 9 % with 32

The demo runs it on the clock of step pipeline01, and draws it.

The trap is memory. All parts wait for backward, with all that they have saved: m parts are a whole
batch again. Schedules that begin B0 as soon as it can begin (1F1B) keep p parts instead of m;
checkpoints (step checkpoint01) keep only inputs.

(In PyTorch: torch.distributed.pipelining.)

Changed: run_layers is run_pipeline now, for parts of the batch.
Try: a last process whose F takes 2. What does the formula say then, and what the clock?
"""

import importlib
from collections.abc import Callable, Sequence

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.distributed.p2p import recv, send
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import zeros

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Clock:
    """The time of one process, and what it has done in each unit of it."""

    def __init__(self):
        self.line = ""

    def work(self, letter: str, units: int) -> None:
        self.line += letter * units

    def wait_until(self, time: int) -> None:
        self.line += "." * (time - len(self.line))


def transmit(x: Tensor, rank: int, clock: Clock) -> None:
    """Sends a tensor, and the time."""
    send(x.detach(), rank)
    send(tensor(len(clock.line)), rank)


def receive(shape: Sequence[int], rank: int, clock: Clock) -> Tensor:
    """Takes a tensor, not before it was sent."""
    x, time = zeros(*shape), tensor(0)
    recv(x, rank)
    recv(time, rank)
    clock.wait_until(time.item())
    return x


def run_pipeline(layer: Module, parts: Sequence[Tensor], loss: Callable, clock: Clock) -> None:
    """Forward for all parts, then backward for all. `layer` is this process's; all have inputs and
    outputs of the shape of a part."""
    rank, last, kept = get_rank(), get_world_size() - 1, []
    for part in parts:
        x = part if rank == 0 else receive(part.shape, rank - 1, clock)
        y = layer(x.requires_grad_())
        clock.work("F", 1)
        if rank < last:
            transmit(y, rank + 1, clock)
        kept.append((x, y))
    for x, y in reversed(kept):
        if rank == last:
            loss(y).backward()
        else:
            y.backward(receive(y.shape, rank + 1, clock))
        clock.work("B", 2)
        if rank > 0:
            transmit(x.grad, rank - 1, clock)


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    batch = randn(32, 8)
    layers = [Sequential(Linear(8, 8), Tanh()) for _ in range(4)]
    Sequential(*layers)(batch).square().mean().backward()
    expected = [layer[0].weight.grad for layer in layers]

    def train(m):
        """This process's layer, with the batch in m parts."""
        init_process_group("mpi")
        layer, clock = Sequential(Linear(8, 8), Tanh()), Clock()
        layer.load_state_dict(layers[get_rank()].state_dict())
        parts = [part.clone() for part in batch.chunk(m)]
        run_pipeline(layer, parts, lambda y: y.square().mean() / m, clock)
        return layer[0].weight.grad, clock.line

    def show(m):
        results = simulate(4, train, m)
        pairs = zip(results, expected, strict=True)
        right = all((g - e).abs().max().item() < 1e-6 for (g, _), e in pairs)
        end = len(results[0][1])  # process 0 ends last
        print(f"{m} parts, gradients right: {right}")
        for _, line in results:
            print(" ", line.ljust(end, "."))
        idle = sum(end - len(line) + line.count(".") for _, line in results) / (4 * end)
        print(f"  bubble: {idle:.0%}, by the formula {3 / (m + 3):.0%}")

    show(1)
    # -> 1 parts, gradients right: True
    # ->   F.........BB
    # ->   .F......BB..
    # ->   ..F...BB....
    # ->   ...FBB......
    # ->   bubble: 75%, by the formula 75%
    show(4)
    # -> 4 parts, gradients right: True
    # ->   FFFF.........BBBBBBBB
    # ->   .FFFF......BBBBBBBB..
    # ->   ..FFFF...BBBBBBBB....
    # ->   ...FFFFBBBBBBBB......
    # ->   bubble: 43%, by the formula 43%
    show(8)
    # -> 8 parts, gradients right: True
    # ->   FFFFFFFF.........BBBBBBBBBBBBBBBB
    # ->   .FFFFFFFF......BBBBBBBBBBBBBBBB..
    # ->   ..FFFFFFFF...BBBBBBBBBBBBBBBB....
    # ->   ...FFFFFFFFBBBBBBBBBBBBBBBB......
    # ->   bubble: 27%, by the formula 27%
