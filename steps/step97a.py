"""Step 97a: A pipeline: the layers divided, the batch in parts

Tensor parallelism sends a message in every layer. Is there a division that sends less? Give each
rank some of the layers: rank 0 the first ones, and so on. A rank sends its output to the next one,
and gets the gradient of it back: y.backward(that gradient). In one step only 2 (p - 1) tensors
travel. But each of four ranks works a quarter of the time (F forward, 1 unit; B backward, 2 units):

    rank 0   F.........BB
    rank 1   .F......BB..
    rank 2   ..F...BB....
    rank 3   ...FBB......

GPipe (Huang et al., 2019) cuts the batch into m parts. While rank 1 works on part 0, rank 0 works
on part 1. Gradients add up over the parts (step 14), so they are those of the whole batch, if each
loss is divided by m. What stays idle, in the beginning and at the end, is called the bubble:

    bubble = (p - 1) / (m + p - 1)        4 ranks: 75 % with 1 part, 43 % with 4, 27 % with 8

The ranks of the demo do not measure the time, they count it: `line` has a letter for each unit, and
each message brings the time at which it was sent.

The trap is memory: all parts wait for backward, with all that they have saved. Schedules that begin
B as early as possible (1F1B) keep p parts in place of m.

PyTorch: torch.distributed.pipelining. The package does not have it.

New: transmit, receive, run_pipeline.
Try: let the last rank take two units for F. What does the formula say now, and what the lines?
In depth: pipeline01 and pipeline02.
"""

import tinytorch.autograd.backward
import tinytorch.nn.functional
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.core.tensor import tensor
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.p2p import recv, send
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.creation import zeros
from tinytorch.ops.random import manual_seed, randn


def transmit(x, dst, line):
    """Send a tensor, and the time."""
    send(x.detach(), dst)
    send(tensor(len(line)), dst)


def receive(shape, src, line):
    """Take a tensor, not before it was sent."""
    x, time = zeros(*shape), tensor(0)
    recv(x, src)
    recv(time, src)
    line += "." * (time.item() - len(line))  # to a list, += adds letter by letter
    return x


def run_pipeline(layer, parts, loss, line):
    """Forward for all parts, then backward for all, through the layers of all ranks."""
    rank, last, kept = get_rank(), get_world_size() - 1, []
    for part in parts:
        x = part.clone() if rank == 0 else receive(part.shape, rank - 1, line)
        y = layer(x.requires_grad_())
        line += "F"
        if rank < last:
            transmit(y, rank + 1, line)
        kept.append((x, y))
    for x, y in reversed(kept):
        if rank == last:
            loss(y).backward()
        else:
            y.backward(receive(y.shape, rank + 1, line))
        line += "BB"
        if rank > 0:
            transmit(x.grad, rank - 1, line)


if __name__ == "__main__":
    manual_seed(0)
    batch = randn(32, 8)
    layers = [Linear(8, 8) for _ in range(4)]
    Sequential(*layers)(batch).square().mean().backward()

    def train(m):
        """The gradient of this rank's layer, with the batch in m parts, and what it did when."""
        init_process_group("mpi")
        layer, line = Linear(8, 8), []
        layer.load_state_dict(layers[get_rank()].state_dict())
        run_pipeline(layer, batch.chunk(m), lambda y: y.square().mean() / m, line)
        return layer.weight.grad, "".join(line)

    for m in (1, 4):
        grads, lines = zip(*simulate(4, train, m), strict=True)
        pairs = zip(grads, layers, strict=True)
        error = max((g - layer.weight.grad).abs().max().item() for g, layer in pairs)
        end = len(lines[0])  # rank 0 ends last; each rank works for 3 units in each part
        print(f"{m} parts, idle {1 - 3 * m / end:.0%}, right: {error < 1e-6}")
    # -> 1 parts, idle 75%, right: True
    # -> 4 parts, idle 43%, right: True
    print(*[line.ljust(end, ".") for line in lines], sep="\n")
    # -> FFFF.........BBBBBBBB
    # -> .FFFF......BBBBBBBB..
    # -> ..FFFF...BBBBBBBB....
    # -> ...FFFFBBBBBBBB......
