"""Step tensorpar02: Gathering the columns

The outputs of step tensorpar01 are divided, and few operations can go on with a part: a softmax
over them, or a loss, needs all. So they are gathered:

    process 0:   y0          GatherLast         [y0 y1]
    process 1:   y1             ->              [y0 y1]

All processes then compute the same loss, from the same y. Of the gradient of y each takes its own
part: nothing has to be sent, since all have all of it. That is SplitLast, and its backward is
GatherLast again:

    GatherLast    y = all parts, side by side    backward: this process's part    (SplitLast)
    SplitLast     y = this process's part        backward: all parts              (GatherLast)

The trap: the loss is one, computed several times. The backward of AllReduce (step syncnorm02) would
add the gradients of all these copies, and the result would be n times too large.

all_gather_into_tensor puts the parts one after the other along a new first dimension. They belong
side by side in the last one, so they are concatenated once more.

Changed: ColumnParallelLinear. New: SplitLast, GatherLast.
Try: let GatherLast's backward add the gradients of all, and then split.
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed.collectives import all_gather_into_tensor
from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.distributed.nn.functional import GroupFunction
from tinytorch.nn.modules.linear import Linear, linear
from tinytorch.nn.parameter import Parameter

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def part_size(whole: int, group: Any) -> int:
    """How many features each process has.

    Raises:
        ValueError: they cannot be divided into equal parts.
    """
    size = get_world_size(group)
    if whole % size:
        raise ValueError(f"{whole} features cannot be divided among {size} processes")
    return whole // size


class CopyToAll(GroupFunction):
    """y = x, which all processes have and use. Each has a part of the gradient: they are added."""

    view = True

    def forward(ctx, x: Any, group: Any) -> Any:
        ctx.group = group
        return x.view()

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumOfAll, g, ctx.group)


class SumOfAll(GroupFunction):
    """y = the sum of x over all processes, which go on with it alike: its gradient is that of x."""

    def forward(ctx, x: Any, group: Any) -> Any:
        ctx.group = group
        return ctx.sum_of_all(x)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(CopyToAll, g, ctx.group)


class SplitLast(GroupFunction):
    """y = this process's part of the last dimension of x. The gradient is gathered."""

    def forward(ctx, x: Any, group: Any) -> Any:
        ctx.group = group
        size = part_size(x.shape[-1], group)
        start = get_rank(group) * size
        return ctx.xp.ascontiguousarray(x[..., start : start + size])

    def backward(ctx, g: Any) -> Any:
        return ctx.call(GatherLast, g, ctx.group)


class GatherLast(GroupFunction):
    """y = the x of all processes, joined along the last dimension. The gradient is split."""

    def forward(ctx, x: Any, group: Any) -> Any:
        ctx.group = group
        out = ctx.xp.empty((get_world_size(group), *x.shape), x.dtype)
        all_gather_into_tensor(wrap(out, ctx.device), wrap(x, ctx.device), group)
        return ctx.xp.concatenate(list(out), axis=-1)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SplitLast, g, ctx.group)


def own_part(whole: Tensor, dim: int, group: Any) -> Parameter:
    """This process's part of a tensor that is divided along `dim`."""
    size = part_size(whole.shape[dim], group)
    return Parameter(whole.detach().split(size, dim)[get_rank(group)].clone())


class ColumnParallelLinear(Linear):
    """A Linear whose outputs are divided: this process has out_features / size of them.

        x [..., in]  ->  x W_rank^T + b_rank [..., out / size]  ->  gathered: [..., out]

    With gather_output=False the result is this process's part, for a RowParallelLinear that takes
    it as it is. Numbers are drawn for the whole weight: with equal seeds in all processes, the
    parts are those of one Linear. Source: Shoeybi et al., Megatron-LM, 2019.
    Raises:
        ValueError: out_features cannot be divided by the number of processes.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, gather_output: bool = True,
        group: Any = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(in_features, out_features, bias, device, dtype)
        self.gather_output, self.group = gather_output, group
        self.weight = own_part(self.weight, 0, group)
        if bias:
            self.bias = own_part(self.bias, 0, group)

    def forward(self, input: Tensor) -> Tensor:
        y = linear(CopyToAll.apply(input, self.group), self.weight, self.bias)
        return GatherLast.apply(y, self.group) if self.gather_output else y


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    inputs = randn(5, 8)

    def run(parallel):
        """Result, gradients, and a second derivative of a layer and a loss."""
        init_process_group("mpi")
        manual_seed(1)
        layer = ColumnParallelLinear(8, 6) if parallel else Linear(8, 6)
        x = inputs.clone().requires_grad_()
        y = layer(x)
        (g,) = grad((y**3).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return y, g, x.grad, layer.weight, layer.weight.grad, layer.bias.grad

    def off(a, b):
        return ((a - b).abs().max() / b.abs().max()).item()

    (whole,) = simulate(1, run, False)

    def compare(size):
        results = simulate(size, run, True)
        print(size, "processes, weight", tuple(results[0][3].shape))
        for i, name in enumerate(("result", "dL/dx", "second derivative")):
            print(f"  {name}: {max(off(result[i], whole[i]) for result in results) < 1e-5}")
        for i, name in ((3, "weight"), (4, "its gradient"), (5, "gradient of the bias")):
            parts = zip(results, whole[i].chunk(size), strict=True)
            print(f"  {name}, each a part: {max(off(r[i], part) for r, part in parts) < 1e-5}")

    compare(2)
    # -> 2 processes, weight (3, 8)
    # ->   result: True
    # ->   dL/dx: True
    # ->   second derivative: True
    # ->   weight, each a part: True
    # ->   its gradient, each a part: True
    # ->   gradient of the bias, each a part: True
    compare(3)
    # -> 3 processes, weight (2, 8)
    # ->   result: True
    # ->   dL/dx: True
    # ->   second derivative: True
    # ->   weight, each a part: True
    # ->   its gradient, each a part: True
    # ->   gradient of the bias, each a part: True

    def part_only():
        init_process_group("mpi")
        layer = ColumnParallelLinear(8, 6, gather_output=False)
        return layer(inputs).shape

    print(simulate(2, part_only)[0])  # -> tinytorch.Size([5, 3])
