"""Step nll02: Cross entropy in one node, in the package's dress

Step 40b built NllLoss: while forward computes the loss it has exp(x) and the sums in hand, so it
computes the gradient as well, the prediction minus the target, into the same array e. Backward only
multiplies.

What is new: halves are computed as float32 (`wide`, as in step reduce04), and two kinds of backward
have two functions. This is right for arrays. On Tensors, where the gradient is to be differentiated
again, `slope` would be a constant of the graph, and the second derivative 0. So backward on Tensors
computes the softmax once more, as a function of x (step 33). singledispatch chooses between the two
by the type of g.

`saves = 0, 1` names the inputs that are kept: a shortcut, which changes no result (step node02).
`wide` computes halves as float32, as in step reduce04.

PyTorch: nn.functional.nll_loss, cross_entropy.

New: nll_gradient, nll_gradient_of_tensor, NllLoss.
Try: take `@nll_gradient.register(Tensor)` and its function out. Which check fails?
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
    return ctx.slope * g


@nll_gradient.register(Tensor)
def nll_gradient_of_tensor(g: Tensor, ctx: Function) -> Tensor:
    """The gradient on Tensors: to be differentiated again, it must be a function of x."""
    x, index = ctx.saved
    classes = wrap(ctx.device.xp.arange(x.array.shape[1]), ctx.device)
    right = (index.reshape(-1, 1) == classes) * g
    return ctx.call(Softmax, x, (1,)) * g - right


class NllLoss(Function):
    """The mean, over the rows x and their classes t, of l = log(sum of exp(x_i)) - x_t.

        dl/dx_i = softmax(x)_i - [i = t]

    Softmax, logarithm, choice and mean in one: stable, as the maximum is taken out first, and only
    one exp. The gradient is prediction minus target: softmax(x) - one_hot(t).
    """

    saves = 0, 1

    def forward(ctx, x: Any, index: Any) -> Any:
        xp, n, z = ctx.xp, len(x), wide(x)
        positions = index + xp.arange(0, x.size, x.shape[1] or 1)  # of x_t in x.reshape(-1)
        z = minus_max(z, (1,), xp)
        e = xp.exp(z)
        sums = sum_rows(e, True)
        losses = xp.log(sums).reshape(n) - z.take(positions)
        e /= sums
        e.reshape(-1)[positions] -= 1
        ctx.slope = e.astype(x.dtype, copy=False)
        ctx.save_for_backward(x, index)
        return (losses.sum() / n).astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return nll_gradient(g / len(ctx.saved[0]), ctx)


if __name__ == "__main__":
    import timeit

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.ops.creation import arange
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.ops.softmax import log_softmax

    def in_parts(logits, labels):  # step digits01
        return -log_softmax(logits, dim=1)[arange(len(labels)), labels].mean()

    manual_seed(0)
    logits, labels = randn(32, 10, requires_grad=True), randint(10, (32,))
    losses = NllLoss.apply(logits, labels), in_parts(logits, labels)
    print("the same loss:", abs((losses[0] - losses[1]).item()) < 1e-6)  # -> the same loss: True
    gradients = [grad(loss, logits)[0] for loss in losses]
    print("and gradient:", (gradients[0] - gradients[1]).abs().max().item() < 1e-7)
    # -> and gradient: True
    target = one_hot(labels, 10)
    print("one hot:", labels[0].item(), target[0].tolist())
    # -> one hot: 4 [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    difference = 32 * gradients[0] - (logits.detach().softmax(1) - target)
    print("prediction minus target:", difference.abs().max().item() < 1e-6)
    # -> prediction minus target: True
    print("a large logit:", NllLoss.apply(tensor([[1000.0, 0.0]]), tensor([1])).item())
    # -> a large logit: 1000.0

    x = logits[:3].detach().double().requires_grad_()
    one_node = lambda x: NllLoss.apply(x, labels[:3])  # noqa: E731
    print(gradcheck(one_node, x), gradgradcheck(one_node, x))  # -> True True

    def microseconds(loss):
        both = lambda: grad(loss(logits, labels), logits)  # noqa: E731
        return min(timeit.repeat(both, number=200, repeat=5)) / 200 * 1e6

    print(f"forward and backward, in parts: {microseconds(in_parts):.0f} us")  # -> ...
    print(f"in one node: {microseconds(NllLoss.apply):.0f} us")  # -> ...
