"""What a second process gains: mpiexec -n 2 python -m benchmarks.ddp

Each network is trained by one process alone, and by all processes with DistributedDataParallel,
each with a batch of the same size, in turns. Printed are the samples per second of all processes
over those of one, the share of a step in which backward has ended on this process's arrays and
waits for the last messages (`finish`), and, from the trace of the profiler, the share of the
messages' time that lies beside backward.

With --messages: the time of small messages over that of mpi4py's own calls, in turns. A call of
mpi4py blocks; or it begins and is waited for, as all calls of tinytorch are, so that a time limit
can end them.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import sys
import time

import numpy as np

import tinytorch
import tinytorch.distributed as dist
from tinytorch import nn
from tinytorch.nn.parallel import DistributedDataParallel
from tinytorch.profiler import profile

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
    with profile() as recorded:
        train(ddp, optimizers[1], x, y, 1)
    return found[1:], waits[1:], beside(recorded.events())  # the first round warms up


def beside(events):
    """The share of the messages' time in which backward still computes."""
    spans = [(e.name, e.start / 1000, e.start / 1000 + e.cpu_time_total) for e in events]
    last = max(end for name, _, end in spans if name.endswith("Backward0"))
    messages = [(begin, end) for name, begin, end in spans if name == "all_reduce"]
    during = sum(max(0, min(end, last) - begin) for begin, end in messages)
    return during / sum(end - begin for begin, end in messages)


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


def ping_pong(send, recv):
    """Two ranks send each other a message, one after the other."""
    if dist.get_rank() == 0:
        send(1)
        recv(1)
    elif dist.get_rank() == 1:
        recv(0)
        send(0)


def calls(comm, mpi, count):
    """Each call as tinytorch makes it, as mpi4py does, and as mpi4py begins it and waits for it."""
    x, a = tinytorch.zeros(count), np.zeros(count, np.float32)
    return {
        "all_reduce": (
            lambda: dist.all_reduce(x),
            lambda: comm.Allreduce(mpi.IN_PLACE, a),
            lambda: comm.Iallreduce(mpi.IN_PLACE, a).Wait(),
        ),
        "broadcast": (
            lambda: dist.broadcast(x, 0),
            lambda: comm.Bcast(a, 0),
            lambda: comm.Ibcast(a, 0).Wait(),
        ),
        "barrier": (dist.barrier, comm.Barrier, lambda: comm.Ibarrier().Wait()),
        "send, recv": (
            lambda: ping_pong(lambda to: dist.send(x, to), lambda at: dist.recv(x, at)),
            lambda: ping_pong(lambda to: comm.Send(a, to), lambda at: comm.Recv(a, at)),
            lambda: ping_pong(
                lambda to: comm.Isend(a, to).Wait(), lambda at: comm.Irecv(a, at).Wait()
            ),
        ),
    }


def messages(rank, rounds=800, repeats=50):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()

    def microseconds(call):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats * 1e6

    for count in (1, 1024):
        for name, ways in calls(comm, MPI, count).items():
            times = [[microseconds(way) for way in ways] for _ in range(rounds + 1)][1:]
            # Short rounds, and of each way a fast one: that in which both processes had a core.
            ours, blocking, waiting = (
                sorted(way)[rounds // 20] for way in zip(*times, strict=True)
            )
            if rank == 0:
                print(
                    f"{name} of {4 * count} bytes: {ours:.1f} us, mpi4py {blocking:.1f} us, begun "
                    f"and waited for {waiting:.1f} us: {ours / blocking:.2f} and "
                    f"{ours / waiting:.2f} times",
                    flush=True,
                )


def main():
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    if "--messages" in sys.argv:
        return messages(rank)
    for name in NETWORKS:
        times, waits, overlap = rounds(name, rank, size)
        if rank == 0:
            gains = sorted(size * one / together for one, together in times)
            fastest = size * min(times)[0] / min(together for _, together in times)
            print(
                f"{name}: {size} processes are {statistics.median(gains):.2f} times as fast as one "
                f"({gains[0]:.2f} to {gains[-1]:.2f}, of the fastest steps {fastest:.2f}: "
                f"{min(times)[0] * 1e3:.1f} ms); finish takes {statistics.median(waits):.1%}; "
                f"{overlap:.0%} of the messages' time is beside backward",
                flush=True,
            )


if __name__ == "__main__":
    main()
