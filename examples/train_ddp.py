"""Reads handwritten digits on several processes:

    python -m tinytorch.distributed.run --nproc_per_node=2 examples/train_ddp.py --epochs 20

Each process gets a share of every batch, and DistributedDataParallel makes the gradients equal: so
2 processes learn what 1 learns, to rounding (--batch-size is the size of the whole batch). Process
0 tells how it goes and, with --checkpoint FILE, writes what a run needs to go on after each epoch.
Started again with --resume, all processes read that file: after a crash nothing else is needed.

With `torch` in place of `tinytorch`, `torchrun` and --backend gloo this is a PyTorch program, apart
from the digits.
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread for each process

import tinytorch
import tinytorch.distributed as dist
from tinytorch import nn
from tinytorch.datasets import Digits
from tinytorch.nn.parallel import DistributedDataParallel
from tinytorch.utils.data import DataLoader
from tinytorch.utils.data.distributed import DistributedSampler


def arguments():
    parser = argparse.ArgumentParser(description="Trains a network on several processes.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=48, help="of all processes together")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--checkpoint", type=Path, help="file to write after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--backend", default="mpi")
    parser.add_argument("--timeout", type=float, default=600, help="seconds to wait for others")
    options = parser.parse_args()
    if options.resume and (options.checkpoint is None or not options.checkpoint.is_file()):
        parser.error("--resume needs --checkpoint FILE, and a file that is there")
    return options


def train_epoch(ddp, loader, optimizer):
    """One pass over this process's share. Returns its mean loss."""
    total = 0.0
    for images, labels in loader:
        loss = nn.functional.cross_entropy(ddp(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@tinytorch.no_grad()
def count_right(model, loader):
    """How many digits of this process's share are read correctly."""
    return sum((model(x).argmax(1) == y).sum().item() for x, y in loader)


def loaders(options, rank, size):
    """Shares of the digits to learn from and of those to be tested."""
    train_set, test_set = Digits(train=True), Digits(train=False)
    sampler = DistributedSampler(train_set, drop_last=True)
    train_loader = DataLoader(
        train_set, options.batch_size // size, sampler=sampler, drop_last=True
    )
    share = tinytorch.utils.data.Subset(test_set, range(rank, len(test_set), size))
    return sampler, train_loader, DataLoader(share, 360)


def main():
    options = arguments()
    dist.init_process_group(options.backend, timeout=timedelta(seconds=options.timeout))
    rank, size = dist.get_rank(), dist.get_world_size()
    tinytorch.manual_seed(0)
    sampler, loader, test_loader = loaders(options, rank, size)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    ddp = DistributedDataParallel(model)
    optimizer = tinytorch.optim.Adam(ddp.parameters(), lr=options.lr)
    parts, done = {"model": model, "optimizer": optimizer}, 0

    if options.resume:
        state = tinytorch.load(options.checkpoint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        done = state["epoch"]
        if rank == 0:
            print(f"goes on after epoch {done}", flush=True)

    for epoch in range(done + 1, options.epochs + 1):
        sampler.set_epoch(epoch)  # or each epoch would have the same order
        mine = [train_epoch(ddp, loader, optimizer) / size, count_right(model, test_loader)]
        result = tinytorch.tensor(mine, dtype=tinytorch.float64)
        dist.all_reduce(result)
        if rank == 0:
            loss, right = result.tolist()
            print(f"epoch {epoch:2}  loss {loss:.6f}  test {right / 360:.2%}", flush=True)
            if options.checkpoint is not None:
                state = {name: part.state_dict() for name, part in parts.items()}
                tinytorch.save({**state, "epoch": epoch}, options.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
