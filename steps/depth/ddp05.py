"""Step ddp05: Overlap in the package's dress

Step 95d built it: a bucket is sent when it is full, while backward still runs. Here `finish` waits
for all messages, and the first bucket is smaller than the others, so that something is on its way
early.

The trap: messages are told apart by their order only. If bucket 2 is complete before bucket 1 in
one process (a branch was taken, a layer was used in another order), it has to wait: all processes
send the buckets in one order, `launched` is the next one.

A second one: MPI works on a message while it is asked about. So each gradient that comes also asks
for the buckets that are on their way.

(Li et al., PyTorch Distributed, 2020, gained up to 38 % with it. PyTorch's hooks, buckets and order
are the same.)

Changed: Bucket, divide_into_buckets, DistributedDataParallel. New: FIRST_BUCKET_MB.
Try: divide self.params instead of self.params[::-1]. When does the first message begin?
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


FIRST_BUCKET_MB = 1  # the first bucket is small: so something is sent early


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
        self.work: Any = None  # what waits for the message


def divide_into_buckets(params: list[Tensor], first_mb: float, cap_mb: float) -> list[Bucket]:
    """Buckets for parameters of one type each, in the given order. A bucket is full when it has
    cap_mb MiB, and the first one of each type when it has first_mb."""
    full, filling, limits = [], {}, {}
    for param in params:
        kind = param.dtype, param.device
        bucket = filling.setdefault(kind, [])
        bucket.append(param)
        if sum(p.nbytes for p in bucket) >= limits.get(kind, first_mb) * 2**20:
            full.append(filling.pop(kind))
            limits[kind] = cap_mb
    return [Bucket(bucket) for bucket in (*full, *filling.values())]


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all processes.

    The processes begin with the parameters and buffers of rank 0, and have to do the same: as many
    calls and as many backward passes. While backward computes gradients, those that are ready are
    on their way, in buckets of bucket_cap_mb MiB.

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
        # The last layer comes first: that is where backward begins.
        self.buckets = divide_into_buckets(self.params[::-1], min(FIRST_BUCKET_MB, cap), cap)
        self.places = {p: (b, i) for b in self.buckets for i, p in enumerate(b.params)}
        self.launched = 0  # how many buckets are on their way
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
        """Called when the gradient of `param` is complete: sends each bucket that is."""
        self.fill(param)
        for bucket in self.buckets[: self.launched]:
            bucket.work.is_completed()
        # In one order in all processes: messages are told apart by their order only.
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            bucket = self.buckets[self.launched]
            bucket.work = all_reduce(bucket.flat, group=self.process_group, async_op=True)
            self.launched += 1
        if self.launched == len(self.buckets):
            self.finish()

    def fill(self, param: Tensor) -> None:
        """Puts the gradient of `param`, divided by the number of processes, into its bucket."""
        bucket, i = self.places[param]
        bucket.missing.remove(i)
        part, grad = bucket.views[i].array, param.grad
        param.device.xp.multiply(grad.array, 1 / self.world_size, out=part)

    def finish(self) -> None:
        """Waits for the buckets, and makes their parts the gradients."""
        for bucket in self.buckets:
            bucket.work.wait()
        for bucket in self.buckets:
            for param, view in zip(bucket.params, bucket.views, strict=True):
                param.grad = view
            bucket.missing = set(range(len(bucket.params)))
        self.launched = 0


if __name__ == "__main__":
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    inputs = randn(2, 8, 16)
    whole = Sequential(*[Linear(16, 16) for _ in range(6)])
    whole(inputs.flatten(0, 1)).square().mean().backward()

    def timeline(cap):
        """What happens in the backward pass of rank 0, a line for each layer that it comes to."""
        init_process_group("mpi")
        model = Sequential(*[Linear(16, 16) for _ in range(6)])
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model, bucket_cap_mb=cap)
        lines = []

        def look(layer):
            sent = ddp.buckets[: ddp.launched]
            there = [bucket for bucket in sent if bucket.work.done]
            lines.append(f"layer {layer}: {len(sent)} buckets sent, {len(there)} are there")

        x = inputs[get_rank()]
        for i, layer in enumerate(model):
            x = layer(x)
            x.register_hook(lambda grad, i=i: look(i))
        x.square().mean().backward()
        pairs = zip(model.parameters(), whole.parameters(), strict=True)
        error = max((p.grad - q.grad).abs().max().item() for p, q in pairs)
        return lines, error < 1e-6, ddp.launched

    lines, right, launched = simulate(2, timeline, 1088 / 2**20)[0]
    print("\n".join(lines))
    # -> layer 5: 0 buckets sent, 0 are there
    # -> layer 4: 1 buckets sent, 0 are there
    # -> layer 3: 2 buckets sent, 1 are there
    # -> layer 2: 3 buckets sent, 2 are there
    # -> layer 1: 4 buckets sent, 3 are there
    # -> layer 0: 5 buckets sent, 4 are there
    print("right:", right, " on their way after backward:", launched)
    # -> right: True  on their way after backward: 0

    # One bucket for all is sent when the first layer has its gradient, and nothing overlaps.
    print(simulate(2, timeline, 25)[0][0][-1])  # -> layer 0: 0 buckets sent, 0 are there

    # The first bucket of each type is full at FIRST_BUCKET_MB.
    params = [zeros(2**18) for _ in range(8)]  # of 1 MiB each
    buckets = divide_into_buckets(params, FIRST_BUCKET_MB, 3)
    print([len(bucket.params) for bucket in buckets])  # -> [1, 3, 3, 1]

    def branches():
        """The processes use the layers in different orders: what is complete first, waits."""
        init_process_group("mpi")
        model = Sequential(Linear(16, 16), Linear(16, 16))
        model.load_state_dict({k: v for k, v in whole.state_dict().items() if k[0] in "01"})
        DistributedDataParallel(model, bucket_cap_mb=0)
        a, b = model if get_rank() == 0 else (model[1], model[0])
        b(a(inputs[0])).square().mean().backward()
        return [param.grad for param in model.parameters()]

    first, second = simulate(2, branches)
    same = [(a - b).abs().max().item() for a, b in zip(first, second, strict=True)]
    print("largest difference between the processes:", max(same))
    # -> largest difference between the processes: 0.0
