"""Step ddp03: Networks that differ are refused

The processes of step ddp02 send their gradients in the order of the parameters. If a network has
another layer in one process, rank 0's third gradient is added to rank 1's third, whatever they are.
With equal sizes nothing fails: a wrong number comes out. With different ones an error names a
buffer, and no layer.

    rank 0:  (4, 3) (4,)            [1]: params[0] in this process with sizes [5, 3] appears not to
    rank 1:  (5, 3) (5,)            match sizes of the same param in process 0, [4, 3].

So the constructor compares first: each process sends the list of its shapes to all (step
launcher01), and all compare all lists with that of rank 0. It has to be all of them: if only the
process that differs raised, the others would wait in the next broadcast.

A network without parameters that want a gradient has nothing to average, and is refused as well.

The trap: equal shapes do not mean equal networks. Two layers of one shape in another order pass.

(PyTorch's class has the same checks, with the same messages.)

Changed: DistributedDataParallel. New: its method check_shapes.
Try: Sequential(Linear(3, 3), ReLU()) in rank 0, and the two exchanged in rank 1. Is it refused?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_world_size
from tinytorch.distributed.objects import all_gather_object
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
        init_sync: compare the shapes of the parameters, and send those of rank 0.
        process_group: the processes that take part; all of them, if it is not given.
    Raises:
        RuntimeError: no parameter requires a gradient, or the networks differ.
        ValueError: there is no process group.
    """

    def __init__(self, module: Module, init_sync: bool = True, process_group: Any = None):
        super().__init__()
        self.world_size = get_world_size(process_group)
        self.module, self.process_group = module, process_group
        self.params = [param for param in module.parameters() if param.requires_grad]
        if not self.params:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        if init_sync:
            self.check_shapes()
            self.send([*module.parameters(), *module.buffers()])
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.gradient_ready)

    def check_shapes(self) -> None:
        """Raises RuntimeError, in all processes, if the networks differ."""
        found: list = [None] * self.world_size
        mine = [tuple(param.shape) for param in self.module.parameters()]
        all_gather_object(found, mine, group=self.process_group)
        for rank, theirs in enumerate(found):
            if len(theirs) != len(found[0]):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank 0 has {len(found[0])} "
                    f"params, while rank {rank} has inconsistent {len(theirs)} params."
                )
            for i, shape in enumerate(theirs):
                if shape != found[0][i]:
                    raise RuntimeError(
                        f"[{rank}]: params[{i}] in this process with sizes {list(shape)} appears "
                        f"not to match sizes of the same param in process 0, {list(found[0][i])}."
                    )

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
    from tinytorch.nn.modules.linear import Linear

    def mistake(number):
        init_process_group("mpi")
        layers = [ReLU(), Linear(3, 4 + get_rank()), Linear(3, 4, bias=get_rank() == 0)]
        try:
            DistributedDataParallel(layers[number])
        except RuntimeError as error:
            return str(error)

    for number in range(3):
        print(simulate(2, mistake, number)[0][:80].strip())
    # -> DistributedDataParallel is not needed when a module doesn't have any parameter t
    # -> [1]: params[0] in this process with sizes [5, 3] appears not to match sizes of t
    # -> DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 h
