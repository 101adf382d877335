"""Step ddp06: Messages in the profile: do they overlap?

Step ddp05 claims that messages travel while backward computes. Does it happen? A profile (the run
profiler) shows each node of backward with its beginning and end, but the messages are not in it:
they begin in one call, and end in another.

So a bucket that is sent while a profile is open opens a row in it, and closes the row when the sums
have come. The row gets a lane of its own, beside that of the thread, in the trace that is drawn:

    lane 0      AddmmBackward0 ...... AddmmBackward0 ......
    message 1               all_reduce ..............
    message 2               all_reduce ..............

The time of a row is not added to the computing of the thread, which went on meanwhile.

(Of the messages' time, benchmarks/ddp.py prints the share that lies beside backward.)

The trap: a row says when this process has seen the end, which is when it asked. Between two
gradients it does not ask.

Changed: Bucket, DistributedDataParallel. New: Bucket.send, Bucket.arrived.
Try: one bucket for both layers. What is left of the overlap?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_world_size
from tinytorch.distributed.objects import all_gather_object
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import zeros
from tinytorch.profiler import FunctionEvent, profile

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

    def send(self, group: Any, lane: int) -> None:
        """Begin to add it up over all processes. An open profile shows how long it is on its way,
        in a lane of its own beside that of the thread, which computes meanwhile."""
        self.work = all_reduce(self.flat, group=group, async_op=True)
        profiles = [mode for mode in state.modes if isinstance(mode, profile)]
        self.rows = [(mode, FunctionEvent("all_reduce", "communication", [])) for mode in profiles]
        for _, row in self.rows:
            row.thread = lane

    def arrived(self) -> bool:
        """Whether the sums are there. MPI works on a message while it is asked about."""
        if self.work.is_completed():
            for mode, row in self.rows:
                row.stop()
                row.self_cpu_time_total = 0.0  # the computing of this thread is counted already
                mode.recorded.append(row)
            self.rows = []
        return self.work.done


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
            bucket.arrived()
        # In one order in all processes: messages are told apart by their order only.
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            bucket = self.buckets[self.launched]
            bucket.send(self.process_group, self.launched)
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
            bucket.arrived()
        for bucket in self.buckets:
            for param, view in zip(bucket.params, bucket.views, strict=True):
                param.grad = view
            bucket.missing = set(range(len(bucket.params)))
        self.launched = 0


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    inputs = randn(2, 8, 16)

    def in_profile():
        """The messages and the nodes of a backward pass, in the order of their beginnings."""
        init_process_group("mpi")
        ddp = DistributedDataParallel(Sequential(Linear(16, 16), Linear(16, 16)), bucket_cap_mb=0)
        loss = ddp(inputs[0]).square().mean()
        with profile() as recorded:
            loss.backward()
        return recorded.events()

    rows = [
        row for row in simulate(2, in_profile)[0] if row.name in ("all_reduce", "AddmmBackward0")
    ]
    print(*[row.name for row in rows])
    # -> AddmmBackward0 all_reduce all_reduce AddmmBackward0 all_reduce all_reduce
    ends = [row.start / 1000 + row.cpu_time_total for row in rows]
    print("on its way while the second node computes:", ends[2] > ends[3])
    # -> on its way while the second node computes: True
