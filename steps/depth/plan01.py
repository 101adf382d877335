"""Step plan01: A job that resumes, with real hangs

Step 97b wrote a file every few steps and went on from it after a failure. Here it is done with
process groups, and a rank can also hang: a process group has a timeout, after which each of the
others says which call did not end.

In the demo a process fails at step 7, in another run it hangs there, and each time the resumed run
ends with the same weights, bit for bit. The order of the samples follows from seed and epoch (step
syncnorm01).

The trap: a crash while the file is being written. save writes beside the old file, and puts the new
one in its place when it is complete (step files11).

How often to write is a question of its own (step plan02).

New: nothing in the framework. examples/train_ddp.py is this, with everything around it.
Try: let process 1 write the file as well. Why is that wrong, although the contents are equal?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import tensor
from tinytorch.distributed.collectives import all_reduce
from tinytorch.distributed.group import get_rank, init_process_group
from tinytorch.nn.parallel.distributed import DistributedDataParallel
from tinytorch.serialization.files import load, save
from tinytorch.utils.data.distributed import DistributedSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    import tempfile
    from datetime import timedelta
    from pathlib import Path

    from tinytorch.datasets.digits import load_digits
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam

    images, labels = load_digits()
    images = images.flatten(1)

    def train(path, accident=None, timeout=60):
        """Twelve steps in three epochs, with a file after each. The accident is that of rank 1."""
        init_process_group("mpi", timeout=timedelta(seconds=timeout))
        manual_seed(get_rank())
        ddp = DistributedDataParallel(Sequential(Linear(64, 32), ReLU(), Linear(32, 10)))
        optimizer, step = Adam(ddp.parameters(), lr=0.01), 0
        if path.exists():
            state = load(path)
            ddp.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = state["step"]
        begun, sampler = step, DistributedSampler(range(400))
        for epoch in range(step // 4, 3):
            sampler.set_epoch(epoch)
            for rows in tensor(list(sampler)).chunk(4):
                step += 1
                if get_rank() == 1 and step == 7 and accident is not None:
                    accident()
                optimizer.zero_grad()
                loss = cross_entropy(ddp(images[rows]), labels[rows])
                loss.backward()
                optimizer.step()
            if get_rank() == 0:
                parts = {"model": ddp.state_dict(), "optimizer": optimizer.state_dict()}
                save({**parts, "step": step}, path)
        all_reduce(loss)
        return begun, loss.item(), ddp.module[0].weight.detach()

    def crash():
        raise OSError("the disk is full")

    def hang():
        all_reduce(tensor([0.0]))  # a call that no other process makes

    with tempfile.TemporaryDirectory() as folder:
        _, loss, weight = simulate(2, train, Path(folder, "whole"))[0]

        def show(accident):
            path = Path(folder, accident.__name__)
            try:
                simulate(2, train, path, accident, 1)
            except Exception as error:
                print(f"{accident.__name__}: {type(error).__name__}")
            begun, again, same = simulate(2, train, path)[0]
            equal = again == loss and (same == weight).all().item()
            print(f"  resumed after step {begun}, the same loss and weights: {equal}")

        show(crash)
        # -> crash: OSError
        # -> resumed after step 4, the same loss and weights: True
        show(hang)
        # -> hang: DistBackendError
        # -> resumed after step 4, the same loss and weights: True
