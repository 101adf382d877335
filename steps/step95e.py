"""Step 95e: no_sync: gradients that add up before they are sent

My batch does not fit into the memory of one GPU: what then? It is computed in parts, whose
gradients add up in .grad (step 14). With the wrapper, each part sends all gradients, though only
the last sum is used. Four parts send four times as much as necessary. The result is right all the
same, so the waste is easy to miss: the demo counts 8 messages where 2 are enough.

    with ddp.no_sync():
        loss(ddp(first)).backward()      own gradients, in .grad
    loss(ddp(second)).backward()         are added to them; then the sums are averaged

no_sync sets a switch for a while. A call of the wrapper looks at it, and remembers for the backward
pass that belongs to the call whether its gradients are to be sent.

(Why is the result right without it? The second backward adds its gradient to the mean of the first
ones, and averages again. A mean that all ranks have already is not changed by that.)

The trap: the call decides, not backward. If only backward stands inside, everything is sent.

PyTorch: DistributedDataParallel.no_sync, the same.

New: DistributedDataParallel.no_sync. Changed: three other methods of DistributedDataParallel.
Try: put only the backward inside of no_sync. How many messages are sent?
In depth: ddp01 to ddp15.
"""

from contextlib import contextmanager

import tinytorch.autograd.backward
import tinytorch.nn.functional
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import default_group, get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import zeros
from tinytorch.ops.random import manual_seed, randn


class Bucket:
    """The gradients of some parameters, one behind the other in one tensor: one message."""

    def __init__(self, params):
        sizes = [param.numel() for param in params]
        self.flat = zeros(sum(sizes))
        pairs = zip(params, self.flat.split(sizes), strict=True)
        self.views = {param: part.view(param.shape) for param, part in pairs}
        self.missing = set(params)  # those whose gradients have not come


def divide_into_buckets(params, cap_mb):
    """Buckets for the parameters in their order. A bucket is full when it has cap_mb MiB."""
    buckets, filling = [], []
    for param in params:
        filling.append(param)
        if sum(p.nbytes for p in filling) >= cap_mb * 2**20:
            buckets.append(Bucket(filling))
            filling = []
    return [*buckets, Bucket(filling)] if filling else buckets


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all ranks."""

    def __init__(self, module, bucket_cap_mb=None):
        super().__init__()
        self.module = module
        for each in [*module.parameters(), *module.buffers()]:
            broadcast(each.detach(), 0)  # the same memory, outside of the graph
        params = list(module.parameters())
        cap = 25 if bucket_cap_mb is None else bucket_cap_mb
        self.buckets = divide_into_buckets(params[::-1], cap)  # backward begins at the last layer
        self.launched = 0  # how many buckets have been sent
        self.require_backward_grad_sync = True  # no_sync sets it to False for a while
        self.places = {param: bucket for bucket in self.buckets for param in bucket.views}
        for param in module.parameters():
            param.register_post_accumulate_grad_hook(self.average)

    def forward(self, *inputs):
        self.reducing = self.require_backward_grad_sync
        return self.module(*inputs)

    @contextmanager
    def no_sync(self):
        """Calls inside leave the gradients as they are; the first after it averages the sums."""
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = True

    def average(self, param):
        """Put the gradient of `param`, which is complete, into its bucket."""
        if not self.reducing:
            return
        bucket = self.places[param]
        bucket.views[param].copy_(param.grad / get_world_size())
        bucket.missing.remove(param)
        while self.launched < len(self.buckets) and not self.buckets[self.launched].missing:
            full = self.buckets[self.launched]
            full.work = all_reduce(full.flat, async_op=True)
            self.launched += 1
        if self.launched == len(self.buckets):
            self.finish()

    def finish(self):
        """Wait for the buckets, and copy the means back."""
        for bucket in self.buckets:
            bucket.work.wait()
            for param, view in bucket.views.items():
                param.grad.copy_(view)
            bucket.missing = set(bucket.views)
        self.launched = 0


if __name__ == "__main__":
    from contextlib import nullcontext  # a `with` that does nothing

    manual_seed(0)
    inputs = randn(2, 4, 8, 16)  # for each of two ranks four parts
    whole = Sequential(*[Linear(16, 16) for _ in range(3)])
    whole(inputs.flatten(0, 2)).square().mean().backward()

    def run(economical):
        """Gradients of a batch in four parts; in how many messages."""
        init_process_group("mpi")
        model = Sequential(*[Linear(16, 16) for _ in range(3)])
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model, bucket_cap_mb=2000 / 2**20)  # two buckets
        before = default_group().begun  # how many messages the group has begun
        *parts, last = inputs[get_rank()]
        for part in parts:
            with ddp.no_sync() if economical else nullcontext():
                (ddp(part).square().mean() / 4).backward()
        (ddp(last).square().mean() / 4).backward()
        sent = default_group().begun - before
        pairs = zip(model.parameters(), whole.parameters(), strict=True)
        error = max((p.grad - q.grad).abs().max().item() for p, q in pairs)
        return f"gradients right: {error < 1e-6}, messages: {sent}"

    print(simulate(2, run, False)[0])  # -> gradients right: True, messages: 8
    print(simulate(2, run, True)[0])  # -> gradients right: True, messages: 2
