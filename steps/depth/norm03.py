"""Step norm03: Running averages in the package's dress

Step 52b built running averages: kept in training, used in evaluation. Here batch_norm gets them as
arguments, as PyTorch's function does, and the node of step norm02 has a second gradient. With fixed
averages m and r do not depend on x. Normalising is then a product and a sum, and its gradient is r
* e: the two means of step norm02 belong to a batch.

The traps: momentum is the share of the new here, that of the old in PyTorch's optimizers. And the
averages are written in place, as they will be buffers of a module. (bump_version: a backward that
still needs them will notice.)

m and r are saved too; in `saves` they are None, constants (step node02).

Changed: Normalization and batch_norm, which now has PyTorch's arguments.
Try: momentum=1.0 in the demo's loop. What do the averages say then?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.reduction import Mean

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Normalization(Function):
    """y = h w + b with h = (x - m) r: m is the mean, r = 1 / sqrt(v + eps), v the variance.

        dL/dx = r (e - mean(e) - h mean(e h)), e = g w;   dL/dw = sum of g h;   dL/db = sum of g

    Means are taken over `dims`.
    """

    saves = 0, 1, 2, None, None

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.dims, ctx.eps = dims, eps
        ctx.fixed = momentum is None and running_mean is not None
        m, v = (running_mean, running_var) if ctx.fixed else ctx.moments(x)
        if momentum is not None:
            n = math.prod(x.shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        return (x - m) * r * weight + bias

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        if ctx.fixed:
            c = x - m
        else:
            c = x - ctx.means(x)
            r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)  # again: on Tensors, with derivatives
        h = c * r
        gw, gb = ctx.call(SumTo, g * h, weight.shape), ctx.call(SumTo, g, bias.shape)
        e = g * weight
        if not ctx.fixed:
            e = e - ctx.means(e) - h * ctx.means(e * h)
        return r * e, gw, gb

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)

    def moments(ctx, x: Any) -> tuple:
        """Mean and variance."""
        m = ctx.means(x)
        return m, ctx.means(ctx.xp.square(x - m))

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value.reshape(-1) - running
            running += momentum * value
            bump_version(running)


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels] has one mean for each channel."""


@checked
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels].

    In training, mean and var (divided by the count n) are those of the batch, and the running ones
    are moved towards them (there var is divided by n - 1); otherwise they are the running ones.
    Source: Ioffe and Szegedy, 2015.
    """
    others = weight, bias, running_mean, running_var
    return NativeBatchNorm.apply(input, *others, (0,), eps, momentum if training else None)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.creation import ones, zeros
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    weight, bias = ones(2), zeros(2)
    one = randn(1, 2)
    print(batch_norm(one, None, None, weight, bias, True).tolist())  # -> [[0.0, 0.0]]
    two = batch_norm(randn(2, 2) * 5 + one, None, None, weight, bias, True)
    print("two rows:", [[round(value, 3) for value in row] for row in two.tolist()])
    # -> two rows: [[-1.0, 1.0], [1.0, -1.0]]

    # Batches whose first channel is 3 + 2 z, and whose second is 10 + 0.5 z, z a normal number.
    spread, centre = Tensor([2.0, 0.5]), Tensor([3.0, 10.0])
    mean, var = zeros(2), ones(2)
    for batch in range(1, 101):
        x = randn(16, 2) * spread + centre
        y = batch_norm(x, mean, var, weight, bias, training=True)
        if batch in (1, 10, 100):
            print(batch, [round(v, 2) for v in mean.tolist()], [round(v, 2) for v in var.tolist()])
    # -> 1 [0.3, 1.0] [1.31, 0.94]
    # -> 10 [2.03, 6.52] [2.77, 0.54]
    # -> 100 [3.12, 10.0] [4.59, 0.28]

    # In use: one row, and its answer does not depend on others.
    rows = Tensor([[3.0, 10.0], [5.0, 10.5]])
    use = batch_norm(rows, mean, var, weight, bias)
    alone = batch_norm(rows[1:], mean, var, weight, bias)
    print([round(v, 1) for v in use[1].tolist()], (alone - use[1:]).abs().max().item())
    # -> [0.9, 0.9] 0.0

    x, w, b = (randn(*s, dtype=float64).requires_grad_() for s in ((5, 3), (3,), (3,)))
    mean, var = zeros(3, dtype=float64), ones(3, dtype=float64) * 2

    def in_use(x, w, b):
        return batch_norm(x, mean, var, w, b)

    def training(x, w, b):
        return batch_norm(x, None, None, w, b, True)

    for norm in (in_use, training):
        print(gradcheck(norm, (x, w, b)), gradgradcheck(norm, (x, w, b)))
    # -> True True
    # -> True True
