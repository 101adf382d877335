"""What a second process gains: mpiexec -n 2 python -m benchmarks.ddp

Each network is trained by one process alone, and by all processes with DistributedDataParallel,
each with a batch of the same size, in turns. Printed are the samples per second of all processes
over those of one, and how the time of a step is divided: `after` is the part in which backward has
ended on this process's arrays and waits for the last messages.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time

import tinytorch
import tinytorch.distributed as dist
from tinytorch import nn
from tinytorch.nn.parallel import DistributedDataParallel

NETWORKS = {
    "MLP, 1.9 million parameters, batch 128": (
        lambda: nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        ),
        (128, 784),
    ),
    "CNN, 0.4 million parameters, batch 64": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4608, 80), nn.ReLU(), nn.Linear(80, 10),
        ),
        (64, 1, 28, 28),
    ),
}  # fmt: skip


def train(model, optimizer, x, y, steps):
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return (time.perf_counter() - start) / steps


def rounds(name, rank, size, count=7, steps=8):
    make, shape = NETWORKS[name]
    tinytorch.manual_seed(0)
    x, y = tinytorch.randn(*shape), tinytorch.randint(0, 10, shape[:1])
    alone, ddp = make(), DistributedDataParallel(make())
    optimizers = [tinytorch.optim.SGD(m.parameters(), lr=0.01) for m in (alone, ddp)]
    found, waits = [], []
    for _ in range(count + 1):
        dist.barrier()
        one = train(alone, optimizers[0], x, y, steps) if rank == 0 else 0.0
        dist.barrier()
        waited = Waiting(ddp)
        together = train(ddp, optimizers[1], x, y, steps)
        waits.append(waited.close() / steps / together)
        times = tinytorch.tensor([one, together])
        dist.all_reduce(times, dist.ReduceOp.MAX)
        one, together = times.tolist()
        found.append((one, together))
    return found[1:], waits[1:]  # the first one warms up


class Waiting:
    """Adds up the time that a DistributedDataParallel spends in finish()."""

    def __init__(self, ddp):
        self.ddp, self.finish, self.seconds = ddp, ddp.finish, 0.0
        ddp.finish = self.measured

    def measured(self):
        start = time.perf_counter()
        self.finish()
        self.seconds += time.perf_counter() - start

    def close(self):
        self.ddp.finish = self.finish
        return self.seconds


def main():
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in NETWORKS:
        times, waits = rounds(name, rank, size)
        if rank == 0:
            gains = sorted(size * one / together for one, together in times)
            fastest = size * min(times)[0] / min(together for _, together in times)
            print(
                f"{name}: {size} processes are {statistics.median(gains):.2f} times as fast as one "
                f"({gains[0]:.2f} to {gains[-1]:.2f}, of the fastest steps {fastest:.2f}: "
                f"{min(times)[0] * 1e3:.1f} ms); finish takes {statistics.median(waits):.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
