"""Step nll03: Cross entropy: row weights, reductions, log-probabilities

NllLoss of step nll02 is a mean over all rows. Programs need more. Some rows should not count: the
padding after a short sentence. Some should count more: those of a rare class. And some programs
have log-probabilities already, and need no second softmax. All of these change a few lines:

    counts       a weight for each row: its loss is multiplied; the mean divides by their sum
    reduction    "mean", "sum", or "none": the losses themselves, in the shape `shape`
    logs         the rows are logarithms of probabilities: l = -x_t, and dl/dx_t = -1

The gradient of a row is multiplied by its share of the result: 1 / n in a mean, weight / sum of the
weights with `counts`, 1 in a sum. The share is saved (its role is None: it is not an input), so
that both kinds of backward have it.

The trap: a row that does not count may hold anything, -inf for example. 0 * inf is nan, so the loss
of such a row is not multiplied by 0 but replaced. If no row counts, the mean is 0 / 0, nan, as in
PyTorch; the gradient of a row that does not count is 0.

PyTorch: weight=, ignore_index=, reduction=. Steps loss10 to loss12 build on this.

Changed: nll_gradient, nll_gradient_of_tensor, NllLoss.
Try: losses * counts in place of the `where`. Which line of the demo says nan?
"""

import functools
import importlib
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.creation import allocated
from tinytorch.ops.reduction import sum_rows, wide
from tinytorch.ops.softmax import Softmax, minus_max

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class that an integer names, 0 elsewhere: [...] becomes [..., num_classes], int64.

    Without `num_classes` the largest integer decides how many there are.

    Raises:
        RuntimeError: the input is not int64, an integer is outside of 0..num_classes-1, or there is
            not as much memory.
        ValueError: `num_classes` needs more than 64 bits.
    """
    if tensor.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    array, xp = tensor.array, tensor.device.xp
    num_classes = as_integer(num_classes)
    if num_classes >= 2**63:
        raise ValueError(f"num_classes does not fit 64 bits: {num_classes}")
    c = int(array.max()) + 1 if num_classes == -1 and array.size else num_classes
    if c < 1 or (array.size and (array.min() < 0 or array.max() >= c)):
        low, high = (int(array.min()), int(array.max())) if array.size else (0, c - 1)
        raise RuntimeError(f"Class values must be from 0 to num_classes - 1, got {low} to {high}")
    classes = allocated(xp.arange, c)
    return wrap((array[..., None] == classes).astype(xp.int64), tensor.device)


@functools.singledispatch
def nll_gradient(g: Any, ctx: Function) -> Any:
    """The gradient of `NllLoss` on arrays: forward has computed softmax(x) - one_hot(t) already."""
    if not ctx.logs:
        return ctx.slope * g
    slope = ctx.xp.zeros(ctx.saved[0].shape, g.dtype)
    slope.reshape(-1)[ctx.positions] = -g.reshape(-1)
    return slope


@nll_gradient.register(Tensor)
def nll_gradient_of_tensor(g: Tensor, ctx: Function) -> Tensor:
    """The gradient on Tensors: to be differentiated again, it must be a function of x."""
    x, index, _ = ctx.saved
    classes = wrap(ctx.device.xp.arange(x.array.shape[1]), ctx.device)
    right = (index.reshape(-1, 1) == classes) * g
    return -right if ctx.logs else ctx.call(Softmax, x, (1,)) * g - right


class NllLoss(Function):
    """The negative log likelihood of class t for each row x: l = log(sum of exp(x_i)) - x_t, times
    the weight of the row (`counts`); or the sum of all l, or their mean, divided by all weights.

        dl/dx_i = softmax(x)_i - [i = t]

    Softmax, logarithm, choice and mean in one: stable, as the maximum is taken out first, and only
    one exp. The gradient is prediction minus target: softmax(x) - one_hot(t). With `logs` the rows
    are logarithms of probabilities already, and l = -x_t. A row of weight 0 is left out.
    """

    saves = 0, 1, None

    def forward(
        ctx, x: Any, index: Any, counts: Any, reduction: str, shape: tuple, logs: bool
    ) -> Any:
        xp, n, z, total, share = ctx.xp, len(x), wide(x), 1, 1.0
        positions = index + xp.arange(0, x.size, x.shape[1] or 1)  # of x_t in x.reshape(-1)
        if logs:
            losses = -z.take(positions)
        else:
            z = minus_max(z, (1,), xp)
            e = xp.exp(z)
            sums = sum_rows(e, True)
            losses = xp.log(sums).reshape(n) - z.take(positions)
            e /= sums
            e.reshape(-1)[positions] -= 1
            ctx.slope = e.astype(x.dtype, copy=False)
        if reduction == "mean":
            total, share = n if counts is None else wide(counts).sum(), 1 / max(n, 1)
        if counts is not None:  # weights of 0: no 0 * inf, and no 0 / 0
            losses = xp.where(counts == 0, xp.zeros_like(losses), losses * counts)
            share = xp.where(counts == 0, counts, counts / total)
            share = share.astype(x.dtype, copy=False).reshape(-1, 1)
        ctx.save_for_backward(x, index, share)
        ctx.logs, ctx.shape, ctx.positions = logs, shape, positions
        losses = losses.reshape(shape) if reduction == "none" else losses.sum() / total
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return nll_gradient(g.reshape(-1, 1) * ctx.saved[2], ctx)

    def name(ctx) -> str:
        return "NllLoss2DBackward0" if len(ctx.shape) > 1 else "NllLossBackward0"


if __name__ == "__main__":
    import math

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.ops.softmax import log_softmax

    x = tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 4.0]], requires_grad=True)
    labels = tensor([0, 1, 0])

    def loss(x, counts=None, reduction="mean", shape=(), logs=False):
        return NllLoss.apply(x, labels, counts, reduction, shape, logs)

    each = loss(x, reduction="none", shape=(3,))
    print("each row:", each.tolist())  # -> each row: [0.407606, 0.094923, 3.094923]
    print("sum:", loss(x, reduction="sum").item(), "mean:", loss(x).item())
    # -> sum: 3.597452 mean: 1.199151
    print("from logarithms:", loss(log_softmax(x, 1), logs=True).item())
    # -> from logarithms: 1.199151
    pictures = loss(x, reduction="none", shape=(1, 3))  # one picture of three pixels
    print(each.grad_fn.name(), pictures.grad_fn.name())  # -> NllLossBackward0 NllLoss2DBackward0

    # The second row does not count, the third counts twice.
    counts = tensor([1.0, 0.0, 2.0])
    weighted = loss(x, counts)
    print("weighted:", weighted.item(), "by hand:", (each * counts).sum().item() / 3)
    # -> weighted: 2.199151 by hand: 2.199151
    print("gradient:", grad(weighted, x)[0].tolist()[1])  # -> gradient: [0.0, 0.0, 0.0]
    unknown = tensor([[2.0, 1.0, 0.0], [0.0, -math.inf, 0.0], [1.0, 1.0, 4.0]])
    print("padding with -inf:", loss(unknown, counts).item())  # -> padding with -inf: 2.199151

    z = x.detach().double().requires_grad_()
    weights = counts.double()
    for options in ((weights, "sum"), (None, "none", (3,), True), (weights, "mean")):
        call = lambda z, options=options: loss(z, *options)  # noqa: E731
        print(options[1], gradcheck(call, z), gradgradcheck(call, z))
        # -> sum True True
        # -> none True True
        # -> mean True True
