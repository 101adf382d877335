"""Step pipeline01: Layers divided, with a clock

Step 97a divided the layers and sent the batch in parts. The package has no pipeline; these two
steps measure what it costs. They begin with one part: process 0 has the first layers, and sends its
outputs to process 1, once, and gets a gradient back. The messages are send and recv of step
messages01.

But process 1 begins when process 0 has finished, and backward comes the other way. Of four
processes one works and three wait: the demo draws it. Its clock is made up: F takes 1, B takes 2,
and a message carries the time at which it was sent.

The trap: y of process 0 must stay alive until its gradient comes, with all that it has saved.

Changed: transmit, receive. New: Clock, run_layers, which are not in the package.
Try: eight processes, with eight layers.
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


def run_layers(layer: Module, batch: Tensor, loss: Callable, clock: Clock) -> None:
    """Forward, then backward. `layer` is this process's; all have inputs and outputs of the shape
    of the batch."""
    rank, last = get_rank(), get_world_size() - 1
    x = batch if rank == 0 else receive(batch.shape, rank - 1, clock)
    y = layer(x.requires_grad_())
    clock.work("F", 1)
    if rank < last:
        transmit(y, rank + 1, clock)
        y.backward(receive(y.shape, rank + 1, clock))
    else:
        loss(y).backward()
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

    def train():
        """This process's layer."""
        init_process_group("mpi")
        layer, clock = Sequential(Linear(8, 8), Tanh()), Clock()
        layer.load_state_dict(layers[get_rank()].state_dict())
        run_layers(layer, batch.clone(), lambda y: y.square().mean(), clock)
        return layer[0].weight.grad, clock.line

    results = simulate(4, train)
    pairs = zip(results, expected, strict=True)
    print("right:", all((g - e).abs().max().item() < 1e-6 for (g, _), e in pairs))  # -> right: True
    for _, line in results:
        print(line.ljust(12, "."))
    # -> F.........BB
    # -> .F......BB..
    # -> ..F...BB....
    # -> ...FBB......
    idle = sum(12 - len(line) + line.count(".") for _, line in results) / 48
    print(
        f"of their time, the processes wait {idle:.0%}"
    )  # -> of their time, the processes wait 75%
