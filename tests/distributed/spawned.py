"""A program that starts its own processes, as PyTorch's do: python spawned.py WAY"""

import os
import signal
import sys

import tinytorch as tt
import tinytorch.distributed as dist
import tinytorch.multiprocessing as mp
from tinytorch import nn
from tinytorch.nn.parallel import DistributedDataParallel


def work(rank, world_size, way):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29501"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    ddp = DistributedDataParallel(nn.Linear(2, 1))
    if rank == 1 and way == "raise":
        raise KeyError("lost")
    if rank == 1 and way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ddp(tt.ones(1, 2) * rank).sum().backward()
    print(f"rank {rank} of {dist.get_world_size()}: {ddp.module.weight.grad.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(3, sys.argv[1]), nprocs=3, join=True)
