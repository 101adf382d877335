"""Step ddp07: no_sync in the package's dress

Step 95e built no_sync: gradients add up over several parts of a batch before they are sent.

no_sync sets a switch. The call looks at it and notes for the backward pass that belongs to it
whether gradients are to be averaged (`reducing`). So the call has to be inside, not only backward.

Calls without a graph (evaluation) leave the note alone. Buffers are sent before a call only if the
call before it averaged gradients: inside no_sync, nothing is sent at all.

The trap: without no_sync, sums are averaged that are averages already, plus a new part. That is
right too: the mean of equal numbers changes nothing.

(PyTorch: DistributedDataParallel.no_sync.)

Changed: DistributedDataParallel. New: its methods no_sync, accumulated.
Try: put only the backward call inside no_sync. How many messages are sent?
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
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
        if self.require_forward_param_sync:
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
                param.grad = view
            bucket.missing = set(range(len(bucket.params)))
        self.launched = 0


if __name__ == "__main__":
    from contextlib import nullcontext

    from tinytorch.autograd.modes import no_grad
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

    class Counted(DistributedDataParallel):
        """Counts the rounds of messages."""

        rounds = 0

        def finish(self):
            self.rounds += 1
            super().finish()

    def accumulate(quiet):
        """The gradient of 8 samples in four parts."""
        init_process_group("mpi")
        model = Linear(16, 4)
        model.load_state_dict(whole.state_dict())
        ddp = Counted(model)
        first, *others, last = inputs[get_rank()].chunk(4)
        for part in (first, *others):
            with ddp.no_sync() if quiet else nullcontext():
                (ddp(part).square().mean() / 4).backward()
        with no_grad():
            ddp(first)
        (ddp(last).square().mean() / 4).backward()
        error = (model.weight.grad - whole.weight.grad).abs().max().item()
        return ddp.rounds, error < 1e-6

    for quiet in (False, True):
        rounds, right = simulate(2, accumulate, quiet)[0]
        print(f"no_sync: {quiet}, rounds of messages: {rounds}, right: {right}")
    # -> no_sync: False, rounds of messages: 4, right: True
    # -> no_sync: True, rounds of messages: 1, right: True

    def buffers():
        """How many tensors are sent at the start, and before each of five calls, if any."""
        init_process_group("mpi")
        sent = []

        class Watched(DistributedDataParallel):
            def send(self, tensors):
                sent.append(len(tensors))
                super().send(tensors)

        ddp = Watched(Sequential(Linear(16, 2), BatchNorm1d(2)))
        for quiet in (False, True, True, False, False):
            with ddp.no_sync() if quiet else nullcontext():
                ddp(inputs[get_rank()])
        return sent

    print("parameters and buffers, then:", simulate(2, buffers)[0])
    # -> parameters and buffers, then: [7, 3, 3, 3]
