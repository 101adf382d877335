"""Step tensorpar03: A matrix divided by rows, in the package's dress

Step 96c divided the second matrix by rows, so that two layers need one message forward and one
backward. Here RowParallelLinear is PyTorch's RowwiseParallel: a Linear whose columns are cut.
Backward is one line in each class: the sum's gradient is every part's gradient (SumOfAll, whose
backward is CopyToAll: nothing is sent), and the first layer's CopyToAll sends.

The trap is the bias. If each process added it before the sum, it would count size times. It is
added after, by all, and its gradient is the same in all.

The demo counts the messages of an MLP, and what each process holds.

New: RowParallelLinear.
Try: pass the bias to linear, instead of adding it after the sum. Which losses of the demo change?
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


class RowParallelLinear(Linear):
    """A Linear whose inputs are divided: this process has in_features / size of them.

        x [..., in]  ->  divided: x_rank [..., in / size]  ->  the sum of all x_rank W_rank^T, + b

    With input_is_parallel=True the input is this process's part already.
    Raises:
        ValueError: in_features cannot be divided by the number of processes.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        input_is_parallel: bool = False, group: Any = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(in_features, out_features, bias, device, dtype)
        self.input_is_parallel, self.group = input_is_parallel, group
        self.weight = own_part(self.weight, 1, group)

    def forward(self, input: Tensor) -> Tensor:
        x = input if self.input_is_parallel else SplitLast.apply(input, self.group)
        y = SumOfAll.apply(linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias  # added once, not by each process


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import here, simulate
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.adam import Adam

    manual_seed(0)
    inputs = randn(10, 5, 8)

    def network(kind):
        """An MLP as a Transformer has it, of Linears; or divided, in two ways."""
        manual_seed(1)
        if kind == "one":
            return Sequential(Linear(8, 32), ReLU(), Linear(32, 8))
        divided = kind == "divided"
        first = ColumnParallelLinear(8, 32, gather_output=not divided)
        return Sequential(first, ReLU(), RowParallelLinear(32, 8, input_is_parallel=divided))

    def calls():
        """How many collective calls this process has made."""
        return here.group.backend.comm.calls

    def train(kind):
        """Ten steps of Adam. Weights, the last loss, and the messages of one step."""
        init_process_group("mpi")
        model = network(kind)
        optimizer = Adam(model.parameters(), lr=0.01)
        sent = []
        for x in inputs:
            x = x.clone().requires_grad_()
            before = calls()
            loss = (model(x) - x).square().mean()
            forward = calls()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sent = [forward - before, calls() - forward]
        return sum(p.numel() for p in model.parameters()), loss.item(), sent

    for size, kind in ((1, "one"), (2, "gathered"), (2, "divided"), (4, "divided")):
        count, loss, sent = simulate(size, train, kind)[0]
        print(f"{size} {kind:8} {count:3} parameters each, loss {loss:.5f}, messages {sent}")
    # -> 1 one      552 parameters each, loss 0.96388, messages [0, 0]
    # -> 2 gathered 280 parameters each, loss 0.96388, messages [2, 2]
    # -> 2 divided  280 parameters each, loss 0.96388, messages [1, 1]
    # -> 4 divided  144 parameters each, loss 0.96388, messages [1, 1]
