"""Step syncnorm03: SyncBatchNorm: the mean of the whole batch

Two processes equal one with the whole batch: with BatchNorm they do not. It subtracts the mean of
the batch, and a process sees only its share. The mean of 2 images is a poor guess of the mean of 6,
and a single value is refused. The demo compares: the result is off by a third, the running mean by
more than its size.

Sums can be added over processes, so the mean and the variance can:

    m = sum of all x / total        v = sum of all (x - m)^2 / total        total = all counts

Everything else in batch normalisation belongs to one sample, or is a sum for the weight and bias,
which DistributedDataParallel averages like every gradient. So the Function of step norm12 changes
in one place: `mean` adds up this process's rows and then all processes' sums. Its backward needs
two means, of the gradients; they come from the same method. For the derivative of the derivative
`means` does so, too, with step syncnorm02's AllReduce, which can be differentiated.

total is counted anew in each call: shares may have different sizes.

The trap: in evaluation nothing is sent, so processes may evaluate alone. In training all have to
call the layer equally often.

New: NativeSyncBatchNorm, SyncBatchNorm.
Try: leave `mean` as it is in step norm12, and see which of the results are wrong.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.group import get_world_size, is_initialized
from tinytorch.distributed.nn.functional import AllReduce, GroupFunction
from tinytorch.nn.modules.batchnorm import _BatchNorm
from tinytorch.ops.normalization import NativeBatchNorm, batch_norm, check
from tinytorch.ops.reduction import Mean

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class NativeSyncBatchNorm(NativeBatchNorm, GroupFunction):
    """NativeBatchNorm with means over the batches of all processes: each adds up its own rows, and
    the sums are added. In backward, too, whose means are those of the gradients."""

    def forward(ctx, *args: Any) -> Any:
        *args, ctx.group = args
        ctx.shape, ctx.dims = args[5], args[6]
        ctx.total = int(ctx.sum_of_all([super().count()])[0])
        return super().forward(*args)

    def count(ctx) -> int:
        return ctx.total

    def mean(ctx, sums: Any) -> Any:
        sums = sums.reshape(ctx.shape[:-1]).sum(axis=0, keepdims=True)  # for each channel
        means = ctx.sum_of_all(sums) / ctx.total
        return ctx.xp.broadcast_to(means, ctx.shape[:-1]).reshape(-1, 1)

    def means(ctx, x: Tensor) -> Tensor:
        own = ctx.call(Mean, x, ctx.dims, True) * (super().count() / ctx.total)
        return ctx.call(AllReduce, own, ctx.group)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm for inputs of any number of dimensions from 2 on, [n, channels, ...], with the mean
    and variance of the whole batch where the processes of process_group have a part of it each.

    In evaluation, and without a process group, it is a BatchNorm.
    Raises:
        ValueError: for an input of fewer dimensions; where it has statistics of all processes, also
            for one without elements.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        options = {"device": device, "dtype": dtype, "bias": bias}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)
        self.process_group = process_group

    def check_input(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def normalize(
        self, input: Tensor, mean: Tensor | None, var: Tensor | None, weight: Tensor | None,
        bias: Tensor | None, training: bool, momentum: float, eps: float,
    ) -> Tensor:  # fmt: skip
        group = self.process_group
        if not self.training or not is_initialized() or get_world_size(group) == 1:
            return batch_norm(input, mean, var, weight, bias, training, momentum, eps)
        if 0 in input.shape:  # the others would make a call more, or fewer
            raise ValueError(f"each process needs a part of the batch, got {list(input.shape)}")
        others = weight, bias, mean, var
        check("batch_norm", input, input.shape[1:2], *others)
        n, channels, *rest = input.shape
        sizes = (n, channels, math.prod(rest)) if rest else (1, channels, n)
        return NativeSyncBatchNorm.apply(input, *others, sizes, (0, 2), eps, momentum, group)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.batchnorm import BatchNorm2d
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    images = randn(6, 3, 4, 4)
    rows = (slice(0, 2), slice(2, 6))  # the processes have two and four of them

    def run(size, synced):
        """The result, the gradient, its derivative and the statistics of this process's share."""
        init_process_group("mpi")
        layer = SyncBatchNorm(3) if synced else BatchNorm2d(3)
        x = images[rows[get_rank()]] if size == 2 else images[:]
        x = x.clone().requires_grad_()
        y = layer(x)
        (g,) = grad((y**3).sum(), x, create_graph=True)
        (g**2).sum().backward()
        layer.eval()
        return y, g, x.grad, layer.running_mean, layer.running_var, layer(x)

    (whole,) = simulate(1, run, 1, True)
    names = "result", "gradient", "its derivative", "running mean", "running variance", "evaluation"

    def compare(synced):
        results = simulate(2, run, 2, synced)
        for i, name in enumerate(names):
            error = 0.0
            for share, result in zip(rows, results, strict=True):
                expected = whole[i] if "running" in name else whole[i][share]
                difference = (result[i] - expected).abs().max() / expected.abs().max()
                error = max(error, difference.item())
            print(f"  {name:16} is off by {error:.2f}")

    compare(synced=False)
    # ->   result           is off by 0.34
    # ->   gradient         is off by 0.74
    # ->   its derivative   is off by 1.65
    # ->   running mean     is off by 2.81
    # ->   running variance is off by 0.05
    # ->   evaluation       is off by 0.02
    compare(synced=True)
    # ->   result           is off by 0.00
    # ->   gradient         is off by 0.00
    # ->   its derivative   is off by 0.00
    # ->   running mean     is off by 0.00
    # ->   running variance is off by 0.00
    # ->   evaluation       is off by 0.00

    def alone():
        """One sample in each process, without a dimension of an image."""
        init_process_group("mpi")
        return SyncBatchNorm(3)(images[get_rank() : get_rank() + 1, :, 0, 0])

    a, b = simulate(2, alone)
    print("one sample each:", (a + b).abs().max().item() < 1e-6, a.abs().min().item() > 0.9)
    # -> one sample each: True True

    try:
        SyncBatchNorm(3)(zeros(3))
    except ValueError as error:
        print(error)  # -> expected at least 2D input (got 1D input)

    def nothing():
        init_process_group("mpi")
        SyncBatchNorm(3)(images[6 * get_rank() :])

    try:
        simulate(2, nothing)
    except ValueError as error:
        print(error)  # -> each process needs a part of the batch, got [0, 3, 4, 4]
