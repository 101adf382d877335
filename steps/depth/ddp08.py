"""Step ddp08: Whose memory is .grad? gradient_as_bucket_view, and PyTorch's arguments

After a message, .grad is a part of the bucket since step ddp04: nothing is copied. But a program
may hold the old .grad, for example to look at it later. That tensor is then out of date, and
nothing says so: the demo keeps one, and gets a sum that was never averaged.

So .grad stays the tensor that it was, and the averages are copied into it. The copy counts as a
write (step 66a). Programs that do not keep gradients can save it, and the memory of a second
set:

    gradient_as_bucket_view=False     .grad keeps its tensor, one copy
    gradient_as_bucket_view=True      .grad is a view into a bucket, as before

The other arguments are PyTorch's from here on. broadcast_buffers=False is for networks whose
buffers never change. Some are accepted and change nothing: inputs are on their device already.

The trap: with views, zeroing a bucket zeroes gradients. optimizer.zero_grad() sets .grad to None,
which is safe.

Changed: DistributedDataParallel.
Try: with views, keep .grad after the last pass of the demo, and run one more. What does it hold?
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version
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
        broadcast_buffers: send the buffers of rank 0 before each call.
        init_sync: compare the shapes of the parameters, and send those of rank 0.
        process_group: the processes that take part; all of them, if it is not given.
        gradient_as_bucket_view: let .grad be a part of a bucket, which saves a copy.
        device_ids, output_device, dim, check_reduction, static_graph: accepted; inputs are not
            moved, and a graph that changes costs nothing.
    Raises:
        RuntimeError: no parameter requires a gradient, or the networks differ.
        ValueError: there is no process group.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.world_size = get_world_size(process_group)
        self.module, self.process_group = module, process_group
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.broadcast_buffers, self.static_graph = broadcast_buffers, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = True  # no_sync sets it to False for a while
        self.require_forward_param_sync = True  # whether the buffers may have become different
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
        self.reducing = False  # whether the last call wants its gradients averaged
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.accumulated)

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
        recorded = state.grad_enabled
        if self.broadcast_buffers and self.require_forward_param_sync:
            self.send(list(self.module.buffers()))
        output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = recorded and self.require_backward_grad_sync
        if recorded:
            self.reducing = self.require_backward_grad_sync
        return output

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Calls inside leave the gradients as they are: the first one after it averages the sums.

        with ddp.no_sync():
            loss(ddp(first)).backward()
        loss(ddp(second)).backward()
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def accumulated(self, param: Tensor) -> None:
        """Called when the gradient of `param` is complete."""
        if self.reducing:
            self.gradient_ready(param)

    def gradient_ready(self, param: Tensor) -> None:
        """Put the gradient of `param` into its bucket, and send each bucket that is complete."""
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
                if self.gradient_as_bucket_view:
                    param.grad = view
                else:
                    param.grad.array[...] = view.array
                    bump_version(param.grad.array)
            bucket.missing = set(range(len(bucket.params)))
        self.launched = 0


if __name__ == "__main__":
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.batchnorm import BatchNorm1d
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    inputs = randn(2, 8, 16)  # for each process, 8 samples
    whole = Linear(16, 4)
    whole(inputs.flatten(0, 1)).square().mean().backward()

    def kept(view):
        """The gradient in two parts. A program keeps .grad after the first."""
        init_process_group("mpi")
        model = Linear(16, 4)
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=view)
        first, last = inputs[get_rank()].chunk(2)
        with ddp.no_sync():
            (ddp(first).square().mean() / 2).backward()
        kept = model.weight.grad
        (ddp(last).square().mean() / 2).backward()
        error, old = ((g - whole.weight.grad).abs().max().item() for g in (model.weight.grad, kept))
        place = "in a bucket" if model.weight.grad is ddp.buckets[0].views[1] else "its own"
        return error < 1e-6, old < 1e-6, place

    for view in (True, False):
        right, also, place = simulate(2, kept, view)[0]
        print(f".grad is right: {right}, and the one that was kept: {also}; memory: {place}")
    # -> .grad is right: True, and the one that was kept: False; memory: in a bucket
    # -> .grad is right: True, and the one that was kept: True; memory: its own

    def statistics():
        init_process_group("mpi")
        model = Sequential(Linear(16, 2), BatchNorm1d(2))
        ddp = DistributedDataParallel(model, device_ids=None, broadcast_buffers=False)
        for _ in range(2):
            ddp(inputs[get_rank()])
        return model[1].running_mean.tolist()

    a, b = simulate(2, statistics)
    print("buffers are left alone:", a != b)  # -> buffers are left alone: True
