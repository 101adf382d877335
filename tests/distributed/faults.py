"""examples/train_ddp.py in which one process fails: mpiexec -n 2 python faults.py KIND OPTIONS...

In epoch 3 the last process raises, is killed, sends another shape than the others, or skips a
batch.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

import tinytorch
import tinytorch.distributed as dist

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_ddp.py"


def fail(kind, loader):
    """What happens in the last process in epoch 3. Returns what it goes on with."""
    if kind == "raise":
        raise OSError("the disk is full")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "shape":
        dist.all_reduce(tinytorch.zeros(3))
    if kind == "skip":
        return list(loader)[:-1]
    return loader


def main():
    kind, example = sys.argv.pop(1), runpy.run_path(str(EXAMPLE))
    scope, epoch = example["main"].__globals__, [0]
    train_epoch = scope["train_epoch"]

    def failing(ddp, loader, optimizer):
        epoch[0] += 1
        if epoch[0] == 3 and dist.get_rank() == dist.get_world_size() - 1:
            loader = fail(kind, loader)
        return train_epoch(ddp, loader, optimizer)

    scope["train_epoch"] = failing
    scope["main"]()


if __name__ == "__main__":
    main()
