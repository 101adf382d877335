"""Step ddp04: Buckets in the package's dress

Step 95c built a bucket: gradients one behind the other in one array, and one message for all. Here
a gradient is divided by the number of processes on its way into the bucket: that costs no extra
pass, and the sum of float16 numbers cannot overflow where the mean does not. After the message,
.grad is the view: nothing is copied back. A bucket is full at 25 MiB, and each type has its own.

The trap: if the processes divide their parameters differently, they add what does not belong
together. The order is that of module.parameters(), equal in all.

(PyTorch's name is the same: bucket_cap_mb.)

Changed: DistributedDataParallel. New: Bucket, divide_into_buckets.
Try: let divide_into_buckets put all types into one bucket. Where does it fail?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_world_size
from tinytorch.distributed.objects import all_gather_object
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import zeros

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Bucket:
    """The gradients of some parameters, one behind the other in one tensor: one message.

    `views` are its parts, in the shapes of the parameters.
    """

    def __init__(self, params: list[Tensor]):
        self.params, like = params, params[0]
        size = sum(param.numel() for param in params)
        self.flat = zeros(size, dtype=like.dtype, device=like.device)
        self.views, start = [], 0
        for param in params:
            part = self.flat.array[start : start + param.numel()]
            self.views.append(wrap(part.reshape(param.shape), like.device))
            start += param.numel()
        self.missing = set(range(len(params)))  # whose gradients have not come


def divide_into_buckets(params: list[Tensor], cap_mb: float) -> list[Bucket]:
    """Buckets for parameters of one type each, in the given order. A bucket is full when it has
    cap_mb MiB."""
    full, filling = [], {}
    for param in params:
        kind = param.dtype, param.device
        bucket = filling.setdefault(kind, [])
        bucket.append(param)
        if sum(p.nbytes for p in bucket) >= cap_mb * 2**20:
            full.append(filling.pop(kind))
    return [Bucket(bucket) for bucket in (*full, *filling.values())]


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all processes.

    The processes begin with the parameters and buffers of rank 0, and have to do the same: as many
    calls and as many backward passes. The gradients are sent in buckets of bucket_cap_mb MiB.

    If the shares of the batch are equally large and the loss is a mean, the processes compute what
    one process computes with the whole batch. Source: Li et al., 2020.

    Args:
        init_sync: compare the shapes of the parameters, and send those of rank 0.
        process_group: the processes that take part; all of them, if it is not given.
    Raises:
        RuntimeError: no parameter requires a gradient, or the networks differ.
        ValueError: there is no process group.
    """

    def __init__(
        self, module: Module, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None,
    ):  # fmt: skip
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
        cap = 25 if bucket_cap_mb is None else bucket_cap_mb
        self.buckets = divide_into_buckets(self.params, cap)
        self.places = {p: (b, i) for b in self.buckets for i, p in enumerate(b.params)}
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
        """Called when the gradient of `param` is complete: the last one sends all."""
        self.fill(param)
        if not any(bucket.missing for bucket in self.buckets):
            self.finish()

    def fill(self, param: Tensor) -> None:
        """Puts the gradient of `param`, divided by the number of processes, into its bucket."""
        bucket, i = self.places[param]
        bucket.missing.remove(i)
        part, grad = bucket.views[i].array, param.grad
        param.device.xp.multiply(grad.array, 1 / self.world_size, out=part)

    def finish(self) -> None:
        """Sends the buckets, and makes their parts the gradients."""
        for bucket in self.buckets:
            all_reduce(bucket.flat, group=self.process_group)
            for param, view in zip(bucket.params, bucket.views, strict=True):
                param.grad = view
            bucket.missing = set(range(len(bucket.params)))


if __name__ == "__main__":
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    inputs = randn(2, 8, 16)
    layers = [Linear(16, 16) for _ in range(12)]
    whole = Sequential(*layers)
    whole(inputs.flatten(0, 1)).square().mean().backward()
    expected = [param.grad for param in whole.parameters()]

    def gradients(cap):
        """Those of 12 layers, by two processes; in how many messages, and of how many bytes."""
        init_process_group("mpi")
        model = Sequential(*[Linear(16, 16) for _ in range(12)])
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model, bucket_cap_mb=cap)
        ddp(inputs[get_rank()]).square().mean().backward()
        return [p.grad for p in model.parameters()], [b.flat.nbytes for b in ddp.buckets]

    for cap in (None, 4096 / 2**20, 0):
        (grads, sizes), _ = simulate(2, gradients, cap)
        pairs = zip(grads, expected, strict=True)
        right = all((a - b).abs().max().item() < 1e-6 for a, b in pairs)
        print(f"messages: {len(sizes):2}, of", *sorted(set(sizes)), f"bytes, right: {right}")
    # -> messages:  1, of 13056 bytes, right: True
    # -> messages:  4, of 64 4288 4352 bytes, right: True
    # -> messages: 24, of 64 1024 bytes, right: True

    def memory():
        """The gradients are parts of the bucket; each type has a bucket."""
        init_process_group("mpi")
        model = Sequential(Linear(2, 2), Linear(2, 2).double())
        ddp = DistributedDataParallel(model)
        total = model[0](inputs[0, :1, :2]).sum() + model[1](inputs[0, :1, :2].double()).sum()
        (total * (get_rank() + 1)).backward()
        first, second = ddp.buckets
        first.flat.zero_()
        return first.flat.dtype, second.flat.dtype, model[0].bias.grad, model[1].bias.grad

    print(*simulate(2, memory)[0][:2])  # -> tinytorch.float32 tinytorch.float64
    print(*[grad.tolist() for grad in simulate(2, memory)[0][2:]])  # -> [0.0, 0.0] [1.5, 1.5]
