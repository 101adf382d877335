"""Step 95c: Buckets: many gradients in one message

Why is a network of many small layers slow on two machines? The wrapper of step 95b sends each
gradient alone. 12 layers are 24 messages for each batch, and a message has a price, however short
it is. Between two processes of the machine where this was written, MPI's all-reduce of 4 bytes took
2 microseconds, one of 1,024 bytes 3, and one of a megabyte 116. Between machines a short one takes
longer still, and the price grows with the number of ranks (step 94d).

So gradients are laid one behind the other in one tensor, a bucket, and the bucket is sent:

    flat      | weight 0 ......... | bias 0 | weight 1 ......... | bias 1 | ...
    views       views[0]             [1]      [2]                  [3]       in their shapes

The parts are views, the memory of `flat` in the shape of each parameter. A gradient that is there
is copied into its view, and divided on the way: the sum of two large numbers might overflow where
their mean does not. When no gradient is missing any more, the buckets are sent, and the means are
copied back.

Why not one bucket for all? The next step sends the first while others are being filled. So a bucket
counts as full when it has 25 MiB, bucket_cap_mb.

The trap: ranks that divide their parameters differently would add up what does not belong together.
The order is that of module.parameters(), equal in all.

PyTorch: the same name and the same 25. Each type and each device has buckets of its own there.

New: Bucket, divide_into_buckets. Changed: DistributedDataParallel.
Try: make the views by part.clone().view(...). What is sent then?
"""

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
        self.params, sizes = params, [param.numel() for param in params]
        self.flat = zeros(sum(sizes))
        parts = self.flat.split(sizes)
        self.views = [part.view(param.shape) for part, param in zip(parts, params, strict=True)]
        self.missing = set(range(len(params)))  # whose gradients have not come


def divide_into_buckets(params, cap_mb):
    """Buckets for the parameters in their order. A bucket is full when it has cap_mb MiB."""
    buckets, filling = [], []
    for param in params:
        filling.append(param)
        if sum(p.numel() * p.element_size() for p in filling) >= cap_mb * 2**20:
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
        self.buckets = divide_into_buckets(params, 25 if bucket_cap_mb is None else bucket_cap_mb)
        # Where each gradient belongs: its bucket, and its number there.
        self.places = {p: (b, i) for b in self.buckets for i, p in enumerate(b.params)}
        for param in params:
            param.register_post_accumulate_grad_hook(self.average)

    def forward(self, *inputs):
        return self.module(*inputs)

    def average(self, param):
        """Called when the gradient of `param` is complete."""
        bucket, i = self.places[param]
        bucket.views[i].copy_(param.grad / get_world_size())
        bucket.missing.remove(i)
        if not any(bucket.missing for bucket in self.buckets):
            self.finish()

    def finish(self):
        """Send the buckets, and copy the means back."""
        for bucket in self.buckets:
            all_reduce(bucket.flat)
            for param, view in zip(bucket.params, bucket.views, strict=True):
                param.grad.copy_(view)
            bucket.missing = set(range(len(bucket.params)))


if __name__ == "__main__":
    manual_seed(0)
    inputs = randn(2, 8, 16)
    whole = Sequential(*[Linear(16, 16) for _ in range(12)])
    whole(inputs.flatten(0, 1)).square().mean().backward()

    def gradients(cap):
        """Those of 12 layers, by two ranks, and in how many messages."""
        init_process_group("mpi")
        model = Sequential(*[Linear(16, 16) for _ in range(12)])
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model, bucket_cap_mb=cap)
        calls = default_group().begun  # how many calls the group has made
        ddp(inputs[get_rank()]).square().mean().backward()
        return [p.grad for p in model.parameters()], default_group().begun - calls

    for cap in (None, 0):  # 25 MiB; each gradient is a bucket
        (grads, sent), _ = simulate(2, gradients, cap)
        pairs = zip(grads, whole.parameters(), strict=True)
        error = max((g - p.grad).abs().max().item() for g, p in pairs)
        print(f"{sent} messages, gradients right: {error < 1e-6}")
    # -> 1 messages, gradients right: True
    # -> 24 messages, gradients right: True
