"""Step ddp13: Shares that are not equally long: join

DistributedSampler (step syncnorm01) makes all shares equally long, and some samples come twice.
Where data comes as a stream, or each process reads files of its own, nothing can make them equal.
The process that has read its last batch leaves the loop, and the others wait in their next message,
until the time limit ends the job: the demo shows it.

    with ddp.join():
        for x in my_batches:
            loss(ddp(x)).backward()

A process that leaves the block does not go on yet. It takes part in the messages of the others,
with zeros for its gradients, until no process has inputs. For that it must know what the others are
about to send. So inside of join each call begins with a small message, `meet`: each process puts
down its plan, and 0 if it has no more inputs.

    process 0    2  2  0  0  0          2: it averages gradients; 1: it does not (no_sync)
    process 1    2  2  2  2  0          0 in all processes: the end

The gradients are divided by the number of all processes, so a batch counts as before.

The trap: the network of a process that has left stays what it was at its last batch, and one with
buffers still waits: the next step. Other collectives in the block (an all_reduce of the loss) are
not joined at all.

(PyTorch: DistributedDataParallel.join.)

Changed: DistributedDataParallel. New: its methods join, send_zeros.
Try: all_reduce the loss in the loop of the demo. Which call of the other process does it meet?
"""

import importlib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import edge_of, parts_to_come
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.core.version import bump_version
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_rank, get_world_size
from tinytorch.distributed.objects import all_gather_object
from tinytorch.distributed.types import ReduceOp
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import zeros
from tinytorch.profiler import FunctionEvent, profile
from tinytorch.utils._nested import tensors_in

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
        find_unused_parameters: do not wait for the gradients of parameters that the result does not
            depend on. A gradient that no process has computed stays as it is.
        gradient_as_bucket_view: let .grad be a part of a bucket, which saves a copy.
        device_ids, output_device, dim, check_reduction, static_graph: accepted; inputs are not
            moved, and a graph that changes costs nothing.
    Raises:
        RuntimeError: no parameter requires a gradient, or the networks differ; in a call, there are
            gradients that did not come in the last backward pass.
        ValueError: there is no process group.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
        check_reduction: bool = False, gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.world_size = get_world_size(process_group)
        self.module, self.process_group = module, process_group
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.broadcast_buffers, self.static_graph = broadcast_buffers, static_graph
        self.find_unused_parameters = find_unused_parameters
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
        self.started, self.launched = False, 0  # a gradient has come; buckets on their way
        self.unused: set[Tensor] = set()  # parameters that the last result does not depend on
        self.used: set[Tensor] = set()  # what got a gradient since the last message, in no_sync too
        self.reducing = False  # whether the last call wants its gradients averaged
        self.meet: Any = None  # in join: what a call does before it sends anything
        ref = weakref.ref(self)  # the parameters outlive this object

        def hook(param: Tensor) -> None:
            ddp = ref()
            if ddp is not None:
                ddp.accumulated(param)

        for param in self.params:
            param.register_post_accumulate_grad_hook(hook)

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
        if recorded and self.require_backward_grad_sync:
            self.check_finished()
        syncing = recorded and self.require_backward_grad_sync
        if self.meet is not None:
            self.meet(1 + syncing)
        if self.broadcast_buffers and self.require_forward_param_sync:
            self.send(list(self.module.buffers()))
        output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = syncing
        if recorded:
            self.reducing = self.require_backward_grad_sync
            if self.find_unused_parameters:
                # Its keys are the leaves that the result depends on.
                used = parts_to_come([edge_of(x) for x in tensors_in(output)], [])
                self.unused = {param for param in self.params if param not in used}
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

    @contextmanager
    def join(self, enable: bool = True) -> Iterator[None]:
        """Calls inside may be more in some processes than in others. A process that leaves takes
        part in the messages of the others, with zeros."""

        def meet(plan: int) -> int:
            """The largest plan of all processes. 2: it averages gradients, 1: it only computes, 0:
            it has no more inputs."""
            plans = tensor(plan, device=self.params[0].device)
            all_reduce(plans, ReduceOp.MAX, group=self.process_group)
            return plans.item()

        self.meet = meet if enable else None
        try:
            yield
        finally:
            self.meet = None
        while enable and (plan := meet(0)):
            if plan == 2:
                self.send_zeros()

    def send_zeros(self) -> None:
        """Takes part in the messages of a backward pass of the others."""
        for lane, bucket in enumerate(self.buckets):
            bucket.flat.zero_()
            bucket.send(self.process_group, lane)
        for bucket in self.buckets:
            bucket.work.wait()
            bucket.arrived()

    def __getstate__(self) -> None:
        raise TypeError("what belongs to a process group is not copied or pickled: take .module")

    def check_finished(self) -> None:
        """Raises RuntimeError if the gradients of the last backward pass have not all come."""
        missing = {id(b.params[i]) for b in self.buckets for i in b.missing}
        if 0 < len(missing) < len(self.params):
            numbers = [str(i) for i, p in enumerate(self.params) if id(p) in missing]
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                "one. This error indicates that your module has parameters that were not used in "
                "producing loss. You can enable unused parameter detection by passing the keyword "
                "argument `find_unused_parameters=True` to "
                "`torch.nn.parallel.DistributedDataParallel`, and by making sure all `forward` "
                "function outputs participate in calculating loss.\n"
                f"Parameter indices which did not receive grad for rank "
                f"{get_rank(self.process_group)}: {' '.join(numbers)}"
            )

    def accumulated(self, param: Tensor) -> None:
        """Called when the gradient of `param` is complete."""
        self.used.add(param)
        if self.reducing:
            self.gradient_ready(param)

    def gradient_ready(self, param: Tensor) -> None:
        """Put the gradient of `param` into its bucket, and send each bucket that is complete."""
        if not self.started:
            self.started = True
            for unused in self.unused:
                self.fill(unused)
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
        if i not in bucket.missing:
            raise RuntimeError(
                "Expected to mark a variable ready only once. A parameter got a gradient twice in "
                "one backward pass, for example in two checkpoints, or one that the result of the "
                "last call does not depend on got a gradient."
            )
        bucket.missing.remove(i)
        part, grad = bucket.views[i].array, param.grad
        if grad is None:
            part[...] = 0
        else:
            param.device.xp.multiply(grad.array, 1 / self.world_size, out=part)

    def finish(self) -> None:
        """Waits for the buckets, and makes their parts the gradients."""
        for bucket in self.buckets:
            bucket.work.wait()
            bucket.arrived()
        absent = self.unused_everywhere() if self.find_unused_parameters else set()
        for bucket in self.buckets:
            for param, view in zip(bucket.params, bucket.views, strict=True):
                if param in absent:
                    continue
                if self.gradient_as_bucket_view:
                    param.grad = view
                elif param.grad is None:
                    param.grad = view.clone()
                else:
                    param.grad.array[...] = view.array
                    bump_version(param.grad.array)
            bucket.missing = set(range(len(bucket.params)))
        self.started, self.launched, self.used = False, 0, set()

    def unused_everywhere(self) -> set[Tensor]:
        """The parameters whose gradient no process has computed."""
        used = tensor([p in self.used for p in self.params], device=self.params[0].device)
        all_reduce(used, group=self.process_group)  # whether one of the processes has used it
        return {p for p, one in zip(self.params, used.tolist(), strict=True) if not one}


if __name__ == "__main__":
    from datetime import timedelta

    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.distributed.types import DistBackendError
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.sgd import SGD

    manual_seed(0)
    inputs = randn(2, 4, 8, 16)  # four batches for each of two processes
    COUNTS = (2, 4)  # how many of them there are

    def network():
        manual_seed(1)
        return Linear(16, 4)

    def train(joined, timeout=60):
        """The weights after a step for each batch of this process."""
        init_process_group("mpi", timeout=timedelta(seconds=timeout))
        rank = get_rank()
        ddp = DistributedDataParallel(network())
        optimizer = SGD(ddp.parameters(), lr=0.1)
        with ddp.join(joined):
            for x in inputs[rank, : COUNTS[rank]]:
                optimizer.zero_grad()
                ddp(x).square().mean().backward()
                optimizer.step()
        return ddp.module.weight.detach()

    try:
        simulate(2, train, False, 0.2)
    except DistBackendError as error:
        print(error)
    # -> rank 1, all_reduce: timed out after 0.2 s: did all processes make this call?

    def expected():
        """The same by one process: the sum of the losses of each step, divided."""
        model = network()
        optimizer = SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            batches = [inputs[r, step] for r in (0, 1) if step < COUNTS[r]]
            total = sum(model(x).square().mean() for x in batches)
            (total / 2).backward()
            optimizer.step()
        return model.weight.detach()

    left, last = simulate(2, train, True)
    off = (last - expected()).abs().max().item()
    print(
        f"the last process is right: {off < 1e-6}, the other equal: {(left == last).all().item()}"
    )
    # -> the last process is right: True, the other equal: False
