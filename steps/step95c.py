"""Step 95c: A bucket: many gradients in one message

Why is a network of many small layers slow on two machines? The wrapper of step 95b sends each
gradient alone. 12 layers are 24 messages for each batch, and a message has a price, however short
it is. Between two processes of the machine where this was written, MPI's all-reduce of 4 bytes took
2 microseconds, and one of 1,024 bytes 3. The price grows with the number of ranks (step 94d).

So gradients are laid one after another in one tensor, a bucket, and the bucket is sent:

    flat      | weight 0 ......... | bias 0 | weight 1 ......... | bias 1 | ...
    views     of weight 0            bias 0   weight 1             bias 1     in their shapes

The parts are views: the memory of `flat`, in the shape of each parameter. A gradient that is there
is copied into its view, and divided on the way: the sum of two large numbers might overflow where
their mean does not. When no gradient is missing any more, the bucket is sent, and the means are
copied back.

The trap: ranks with another order of parameters would add up what does not belong together. The
order is that of module.parameters(), equal in all.

PyTorch does the same, with a bucket for each type and device.

New: Bucket. Changed: DistributedDataParallel.
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
        sizes = [param.numel() for param in params]
        self.flat = zeros(sum(sizes))
        pairs = zip(params, self.flat.split(sizes), strict=True)
        self.views = {param: part.view(param.shape) for param, part in pairs}
        self.missing = set(params)  # those whose gradients have not come


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all ranks."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for each in [*module.parameters(), *module.buffers()]:
            broadcast(each.detach(), 0)  # the same memory, outside of the graph
        self.bucket = Bucket(list(module.parameters()))
        for param in module.parameters():
            param.register_post_accumulate_grad_hook(self.average)

    def forward(self, *inputs):
        return self.module(*inputs)

    def average(self, param):
        """Put the gradient of `param`, which is complete, into the bucket."""
        self.bucket.views[param].copy_(param.grad / get_world_size())
        self.bucket.missing.remove(param)
        if not self.bucket.missing:
            self.finish()

    def finish(self):
        """Send the bucket, and copy the means back."""
        all_reduce(self.bucket.flat)
        for param, view in self.bucket.views.items():
            param.grad.copy_(view)
        self.bucket.missing = set(self.bucket.views)


if __name__ == "__main__":
    manual_seed(0)
    inputs = randn(2, 8, 16)
    whole = Sequential(*[Linear(16, 16) for _ in range(12)])
    whole(inputs.flatten(0, 1)).square().mean().backward()

    def gradients():
        """Those of 12 layers, by two ranks, and in how many messages."""
        init_process_group("mpi")
        model = Sequential(*[Linear(16, 16) for _ in range(12)])
        model.load_state_dict(whole.state_dict())
        ddp = DistributedDataParallel(model)
        for _ in range(2):  # the bucket is filled again
            model.zero_grad()
            before = default_group().begun  # how many messages the group has begun
            ddp(inputs[get_rank()]).square().mean().backward()
        return [p.grad for p in model.parameters()], default_group().begun - before

    grads, sent = simulate(2, gradients)[0]
    pairs = zip(grads, whole.parameters(), strict=True)
    error = max((g - p.grad).abs().max().item() for g, p in pairs)
    print(f"{len(grads)} gradients in {sent} message, right: {error < 1e-6}")
    # -> 24 gradients in 1 message, right: True
