"""Step norm02: The gradient of batch normalisation, by hand

batch_norm of step norm01 leaves nine nodes in the graph, which keep twice what is needed: x. But
the gradient can be derived by hand. For one column, let c = x - mean, r = 1 / sqrt(var + eps) and
h = c r:

    what x_i does directly              e_i r             e = g weight, the gradient of h
    through the mean, in all h_k       -mean(e) r         every h_k falls with it
    through the variance, in all h_k   -mean(e h) h_i r   a larger x_i makes r smaller

    dL/dx = r (e - mean(e) - h mean(e h))

e is a vector with n numbers. What the normalisation takes out of x is taken out of the gradient,
too: its part along (1, 1, ..., 1), a shift of the batch, and its part along h, a larger or smaller
batch. Neither changes the result, so neither has a derivative. The demo prints both: zero.

forward keeps x alone, and backward computes h again, which is cheap. All of it is written with
operators and with what ctx.call and ctx.xp give: on Tensors backward is differentiated again.

The trap: without the two means, r * e, there is still a gradient that trains, only worse, and no
error says so. gradcheck does.

`saves = 0, 1, 2` declares that arguments 0 to 2 are kept (step node02).

Changed: batch_norm is one node, as in PyTorch. New: Normalization, NativeBatchNorm.
Try: return r * g * weight in backward. Which lines of the demo notice?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
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

    saves = 0, 1, 2

    def forward(ctx, x: Any, weight: Any, bias: Any, dims: tuple[int, ...], eps: float) -> Any:
        ctx.dims, ctx.eps = dims, eps
        ctx.save_for_backward(x, weight, bias)
        c = x - ctx.means(x)
        r = 1 / ctx.xp.sqrt(ctx.means(c * c) + eps)
        return c * r * weight + bias

    def backward(ctx, g: Any) -> Any:
        x, weight, bias = ctx.saved
        c = x - ctx.means(x)
        r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)
        h = c * r
        gw, gb = ctx.call(SumTo, g * h, weight.shape), ctx.call(SumTo, g, bias.shape)
        e = g * weight
        e = e - ctx.means(e) - h * ctx.means(e * h)
        return r * e, gw, gb

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels] has one mean for each channel."""


@checked
def batch_norm(input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels]."""
    return NativeBatchNorm.apply(input, weight, bias, (0,), eps)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.creation import ones, zeros
    from tinytorch.ops.random import manual_seed, randn

    def composite(x, weight, bias, eps=1e-5):  # step norm01
        c = x - x.mean(0, True)
        var = c.square().mean(0, True)
        return c / (var + eps).sqrt() * weight + bias

    def graph(y):
        """How many nodes are behind y, and how many elements they keep."""
        nodes, todo = set(), [y.grad_fn]
        while todo:
            node = todo.pop()
            if hasattr(node, "saved") and node not in nodes:
                nodes.add(node)
                todo += [edge[0] for edge in node.edges if edge is not None]
        kept = {id(a): a.size for node in nodes for a in node.saved if hasattr(a, "size")}
        return f"{len(nodes)} nodes keep {sum(kept.values())} elements"

    manual_seed(0)
    x, g = randn(128, 64).requires_grad_(), randn(128, 64)
    weight, bias = ones(64).requires_grad_(), zeros(64).requires_grad_()
    grads = []
    for function in (composite, batch_norm):
        x.grad = None
        y = function(x, weight, bias)
        print(y.grad_fn.name(), graph(y))
        # -> AddBackward0 9 nodes keep 16512 elements
        # -> NativeBatchNormBackward0 1 nodes keep 8320 elements
        y.backward(g)
        grads.append(x.grad)
    print("the same gradient:", (grads[0] - grads[1]).abs().max().item() < 1e-6)
    # -> the same gradient: True
    gx, h = grads[1], y.detach()
    print(
        f"sums along (1, ..., 1): {gx.sum(0).abs().max():.3f}, before: {g.sum(0).abs().max():.3f}"
    )
    # -> sums along (1, ..., 1): 0.000, before: 29.937
    print(f"along h: {(gx * h).sum(0).abs().max():.3f}, before: {(g * h).sum(0).abs().max():.3f}")
    # -> along h: 0.000, before: 26.790

    x, w, b = (randn(*s, dtype=float64).requires_grad_() for s in ((5, 3), (3,), (3,)))
    print(gradcheck(batch_norm, (x, w, b)), gradgradcheck(batch_norm, (x, w, b)))  # -> True True
