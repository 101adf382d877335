"""SyncBatchNorm: batch normalisation whose batch is that of all processes together."""

import math
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.group import get_world_size, is_initialized
from tinytorch.distributed.nn.functional import AllReduce, GroupFunction
from tinytorch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from tinytorch.nn.modules.module import Module
from tinytorch.ops.normalization import NativeBatchNorm, batch_norm, check
from tinytorch.ops.reduction import Mean


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

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with a SyncBatchNorm, which has the same parameters and buffers, in the place
        of each BatchNorm in it; a BatchNorm itself gives a new SyncBatchNorm."""
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            options = module.eps, module.momentum, module.affine, module.track_running_stats
            old, module = module, cls(module.num_features, *options, process_group)
            for name, value in (*old._parameters.items(), *old._buffers.items()):
                setattr(module, name, value)
            module.train(old.training)
        for name, child in module.named_children():
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module
