"""Step 97b: One rank fails, and the job goes on

What happens when a GPU breaks? The 16,384 GPUs that trained Llama 3 were interrupted 419 times in
54 days without a plan (Meta, 2024); for 1,000 GPUs that is once in two days. A rank that is gone
cannot answer, so all others wait in their next all_reduce, until the group's time limit is over or
mpiexec, which has seen the process die, ends them. The whole job stops, and starts again from a
file:

    every few steps    rank 0 writes weights, state of the optimizer, and number of the step
    at the start       all ranks read the file, if it is there

One copy is enough: gradients are averaged, so weights and moments are equal in all ranks. The order
of the samples follows from seed and epoch (step 95f), so the number of the step is enough to find
the place again.

In the demo rank 1 fails in step 7. The second run goes on after step 4, and ends with the weights
of a run without an accident.

The trap is a crash while the file is being written. `save` of step 48b writes over the old file.
The finished one writes a new file beside it, and gives it the name when it is complete.

PyTorch: the same by hand, or torch.distributed.checkpoint; torchrun --max-restarts starts again.

New: save_training, load_training.
Try: leave optimizer out of the file. Are the weights equal?
"""

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
from tinytorch.core.tensor import tensor
from tinytorch.distributed.group import get_rank, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.parallel.distributed import DistributedDataParallel
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.adam import Adam
from tinytorch.serialization.files import load, save
from tinytorch.utils.data.distributed import DistributedSampler


def save_training(path, model, optimizer, step):
    """Let rank 0 write what a run needs to go on."""
    if get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save({**states, "step": step}, path)


def load_training(path, model, optimizer):
    """Read it in all ranks, if it is there. Returns the number of the step."""
    if not path.exists():
        return 0
    states = load(path)
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    return states["step"]


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    manual_seed(0)
    inputs, targets = randn(400, 16), randint(0, 4, (400,))

    def train(path, fails_at=None):
        """Three epochs of four steps, with a file after each."""
        init_process_group("mpi")
        manual_seed(0)
        model = DistributedDataParallel(Linear(16, 4))
        optimizer, sampler = Adam(model.parameters(), lr=0.01), DistributedSampler(range(400))
        first = step = load_training(path, model, optimizer)
        for epoch in range(first // 4, 3):  # the file was written at the end of an epoch
            sampler.set_epoch(epoch)
            for rows in tensor(list(sampler)).chunk(4):
                step += 1
                if (get_rank(), step) == (1, fails_at):
                    raise OSError("this machine is broken")
                optimizer.zero_grad()
                cross_entropy(model(inputs[rows]), targets[rows]).backward()
                optimizer.step()
            save_training(path, model, optimizer, step)
        return first, model.module.weight.detach()

    with tempfile.TemporaryDirectory() as folder:
        _, whole = simulate(2, train, Path(folder, "one"))[0]
        try:
            simulate(2, train, Path(folder, "two"), 7)
        except Exception:
            print("the job has failed")  # -> the job has failed
        first, again = simulate(2, train, Path(folder, "two"))[0]
    print(f"goes on after step {first}, weights differ by {(again - whole).abs().max().item()}")
    # -> goes on after step 4, weights differ by 0.0
