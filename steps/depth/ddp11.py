"""Step ddp11: find_unused_parameters: zeros for what a call does not use

Step ddp10 refuses a network whose calls use only a part of it. To train it, the wrapper has to know
which gradients will not come. The graph knows. After a call, the hooks' own search (step engine09)
lists the leaves behind the result, and all other parameters count as ready, with zeros:

    process 0 used branch A:   A: g0    B: 0            averages:   A: g0 / 2
    process 1 used branch B:   A: 0     B: g1                       B: g1 / 2

That is the gradient of the mean loss: the loss of the other process does not depend on A.

The search walks through the whole graph after each call, so it has to be asked for.

The trap: a parameter that gets a gradient behind the wrapper's back (it is used outside of the
call, or in two checkpoints) would be counted twice, and its bucket would be sent with half a sum.
This is an error.

(PyTorch has the same argument.)

Changed: DistributedDataParallel.
Try: leave out the argument in the demo. What do the processes have in their gradients?
"""

import importlib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import edge_of, parts_to_come
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_rank, get_world_size
from tinytorch.distributed.objects import all_gather_object
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
            depend on.
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
        self.reducing = False  # whether the last call wants its gradients averaged
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
        if self.broadcast_buffers and self.require_forward_param_sync:
            self.send(list(self.module.buffers()))
        output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = recorded and self.require_backward_grad_sync
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
        for bucket in self.buckets:
            for param, view in zip(bucket.params, bucket.views, strict=True):
                if self.gradient_as_bucket_view:
                    param.grad = view
                elif param.grad is None:
                    param.grad = view.clone()
                else:
                    param.grad.array[...] = view.array
                    bump_version(param.grad.array)
            bucket.missing = set(range(len(bucket.params)))
        self.started, self.launched = False, 0


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.creation import ones
    from tinytorch.ops.random import manual_seed

    class Branches(Module):
        """Two layers, of which a call uses one, and one that none uses."""

        def __init__(self):
            super().__init__()
            manual_seed(0)
            self.a, self.b, self.never = Linear(2, 2), Linear(2, 2), Linear(2, 2)

        def forward(self, x, use_a):
            return {"result": [(self.a if use_a else self.b)(x)]}

    def searched(branches):
        """The gradients if each process takes the branch that is named for it."""
        init_process_group("mpi")
        ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
        result = ddp(ones(1, 2) * (get_rank() + 1), branches[get_rank()] == "a")["result"][0]
        result.sum().backward()
        return [p.grad if p.grad is None else p.grad.tolist() for p in ddp.module.parameters()]

    for branches in ("ab", "aa"):
        grads, others = simulate(2, searched, branches)
        rows = [grad and grad[0] for grad in grads[::2]]
        print(branches, "a, b, never:", *rows, grads == others)
    # -> ab a, b, never: [0.5, 0.5] [1.0, 1.0] [0.0, 0.0] True
    # -> aa a, b, never: [1.5, 1.5] [0.0, 0.0] [0.0, 0.0] True

    def behind_its_back():
        """A parameter gets a gradient though the result of the call does not depend on it."""
        init_process_group("mpi")
        ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
        y = ddp(ones(1, 2), True)["result"][0] + ddp.module.never(ones(1, 2))
        try:
            y.sum().backward()
        except RuntimeError as error:
            return str(error)

    print(simulate(2, behind_its_back)[0][:52])
    # -> Expected to mark a variable ready only once. A param
