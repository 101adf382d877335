"""Step ddp02: DistributedDataParallel in the package's dress

Step 95b built the wrapper: one broadcast at the start, and hooks that average. Here it also sends
the buffers before each call, since BatchNorm's statistics are not parameters, and drift:

    at the start     broadcast the parameters and buffers of rank 0
    each call        broadcast the buffers: BatchNorm's statistics are not parameters, they drift
    each gradient    a hook on the leaf (step engine09) averages it as soon as it is complete

The names in its state_dict begin with "module.", as PyTorch's do; save model.module to do without.

The trap: rank 0 is special only at the start and for buffers. If a program changes the weights in
rank 0 later (loads a file, clips them), nothing sends the change to the others.

New: DistributedDataParallel. average_gradients is dropped: the hook has taken its place.
Try: give the wrapper init_sync=False, and find the line of the demo that tells.
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_world_size
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all processes.

    The processes begin with the parameters and buffers of rank 0, and have to do the same: as many
    calls and as many backward passes. Each gradient is a message.

    If the shares of the batch are equally large and the loss is a mean, the processes compute what
    one process computes with the whole batch. Source: Li et al., 2020.

    Args:
        init_sync: send the parameters of rank 0.
        process_group: the processes that take part; all of them, if it is not given.
    Raises:
        ValueError: there is no process group.
    """

    def __init__(self, module: Module, init_sync: bool = True, process_group: Any = None):
        super().__init__()
        self.world_size = get_world_size(process_group)
        self.module, self.process_group = module, process_group
        self.params = [param for param in module.parameters() if param.requires_grad]
        if init_sync:
            self.send([*module.parameters(), *module.buffers()])
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.gradient_ready)

    def send(self, tensors: list[Tensor]) -> None:
        """Makes these tensors those of the first process."""
        first, group = get_process_group_ranks(self.process_group)[0], self.process_group
        for work in [broadcast(x.detach(), first, group, async_op=True) for x in tensors]:
            work.wait()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self.send(list(self.module.buffers()))
        return self.module(*inputs, **kwargs)

    def gradient_ready(self, param: Tensor) -> None:
        """Called when the gradient of `param` is complete."""
        all_reduce(param.grad, group=self.process_group)
        param.grad.array[...] *= 1 / self.world_size


if __name__ == "__main__":
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.batchnorm import BatchNorm1d
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.adam import Adam

    manual_seed(7)
    inputs, targets = randn(40, 8, 16), randint(0, 4, (40, 8))

    def network():
        return Sequential(Linear(16, 32), ReLU(), Linear(32, 4))

    def train(wrapped):
        """Each process draws weights of its own, and has half of each batch."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(rank)
        model = network()
        if wrapped:
            model = DistributedDataParallel(model)
        optimizer = Adam(model.parameters(), lr=0.01)
        for x, y in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        return model

    def difference(a, b):
        pairs = zip(a.parameters(), b.parameters(), strict=True)
        return max((p - q).abs().max().item() for p, q in pairs)

    (one,) = simulate(1, train, False)
    print("without the wrapper:", difference(*simulate(2, train, False)) > 0.1)
    # -> without the wrapper: True
    a, b = simulate(2, train, True)
    print("with it:", difference(a, b), "and to one process:", difference(a, one) < 1e-5)
    # -> with it: 0.0 and to one process: True
    print(list(a.state_dict()))
    # -> ['module.0.weight', 'module.0.bias', 'module.2.weight', 'module.2.bias']

    def statistics():
        """What BatchNorm has seen, when a call begins."""
        init_process_group("mpi")
        model = Sequential(Linear(16, 2), BatchNorm1d(2))
        wrapper, seen = DistributedDataParallel(model), []
        model[0].register_forward_pre_hook(lambda *_: seen.append(model[1].running_mean.tolist()))
        for x in inputs.chunk(2, 1)[get_rank()][:2]:
            wrapper(x)
        return seen[1], model[1].running_mean.tolist()

    (first, after), (second, after_second) = simulate(2, statistics)
    print("as the second call begins:", first == second, " as it ends:", after == after_second)
    # -> as the second call begins: True  as it ends: False
