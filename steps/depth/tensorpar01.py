"""Step tensorpar01: A matrix divided by columns, in the package's dress

Step 96c built the layer. CopyToAll and SumOfAll are each other's backward, so derivatives of any
order work. Here they take a group, the layer is made of a finished Linear whose rows are cut, and
sizes that do not divide are refused.

The trap: this is not the all_reduce of step syncnorm02. There each process has a loss of its own
and the losses are added. Here the loss is one, in parts.

(Megatron-LM's names, in tinytorch.distributed.megatron. PyTorch's ColwiseParallel, in
torch.distributed.tensor.parallel, divides a Linear that is there.)

Changed: CopyToAll, SumOfAll, own_part, ColumnParallelLinear. New: part_size.
Try: remove CopyToAll from forward. Which of the promises is broken?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
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


def own_part(whole: Tensor, dim: int, group: Any) -> Parameter:
    """This process's part of a tensor that is divided along `dim`."""
    size = part_size(whole.shape[dim], group)
    return Parameter(whole.detach().split(size, dim)[get_rank(group)].clone())


class ColumnParallelLinear(Linear):
    """A Linear whose outputs are divided: this process has out_features / size of them.

        x [..., in]  ->  x W_rank^T + b_rank [..., out / size]

    Numbers are drawn for the whole weight: with equal seeds in all processes, the
    parts are those of one Linear. Source: Shoeybi et al., Megatron-LM, 2019.
    Raises:
        ValueError: out_features cannot be divided by the number of processes.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, group: Any = None,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(in_features, out_features, bias, device, dtype)
        self.group = group
        self.weight = own_part(self.weight, 0, group)
        if bias:
            self.bias = own_part(self.bias, 0, group)

    def forward(self, input: Tensor) -> Tensor:
        return linear(CopyToAll.apply(input, self.group), self.weight, self.bias)


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
        parts = zip(results, whole[0].chunk(size, 1), strict=True)
        print(f"  result, each a part: {max(off(r[0], part) for r, part in parts) < 1e-5}")
        for i, name in enumerate(("dL/dx", "second derivative"), start=1):
            print(f"  {name}: {max(off(result[i], whole[i]) for result in results) < 1e-5}")
        for i, name in ((3, "weight"), (4, "its gradient"), (5, "gradient of the bias")):
            parts = zip(results, whole[i].chunk(size), strict=True)
            print(f"  {name}, each a part: {max(off(r[i], part) for r, part in parts) < 1e-5}")

    compare(2)
    # -> 2 processes, weight (3, 8)
    # ->   result, each a part: True
    # ->   dL/dx: True
    # ->   second derivative: True
    # ->   weight, each a part: True
    # ->   its gradient, each a part: True
    # ->   gradient of the bias, each a part: True
    compare(3)
    # -> 3 processes, weight (2, 8)
    # ->   result, each a part: True
    # ->   dL/dx: True
    # ->   second derivative: True
    # ->   weight, each a part: True
    # ->   its gradient, each a part: True
    # ->   gradient of the bias, each a part: True

    def indivisible():
        init_process_group("mpi")
        try:
            ColumnParallelLinear(8, 7)
        except ValueError as error:
            return str(error)

    print(simulate(2, indivisible)[0])
    # -> 7 features cannot be divided among 2 processes
