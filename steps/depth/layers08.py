"""Step layers08: Identity, Flatten, Unflatten

Some layers only change shapes, because a Sequential has no code between its layers. Images of shape
[n, c, h, w] have to become rows before a Linear, and rows have to become images after one:

    Flatten()                  [n, c, h, w]  ->  [n, c * h * w]
    Unflatten(1, (8, 8))       [n, 64]       ->  [n, 8, 8]
    Identity()                 returns its input

Identity replaces a layer that was removed, such as the last one of a pretrained network. For that
reason its constructor accepts any arguments: only the name of the class has to change.

The trap: Flatten begins at dimension 1. Dimension 0 is the batch, whose items must stay separate.
(Names and defaults are PyTorch's.)

New: Identity, Flatten, Unflatten.
Try: flatten from dimension 0. Which line of the demo complains, and about what?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.matmul import MatMul, check_operands, matmul, matmul_arrays
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Addmm(Function):
    """Y = X W^T + b;   dL/dX = G W,   dL/dW = G^T X,   dL/db = the sum of the rows of G.

    One node instead of three, and no gradient of W^T that would have to be turned round.
    """

    saves = 0, 1

    def forward(ctx, x: Any, weight: Any, bias: Any = None) -> Any:
        ctx.save_for_backward(x, weight)
        rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if 2 * len(rows) < len(weight):  # BLAS likes few columns better than few rows
            y = ctx.xp.ascontiguousarray(matmul_arrays(weight, rows.T).T)
        else:
            y = matmul_arrays(rows, weight.T)
        if bias is not None:
            y += bias
        return y if x.ndim == 2 else y.reshape((*x.shape[:-1], len(weight)))

    def backward(ctx, g: Any) -> Any:
        x, weight = ctx.saved
        need_x, need_weight, *need_bias = ctx.needs_input_grad
        shape = x.shape
        if len(shape) != 2:
            n = math.prod(shape[:-1])
            x, g = x.reshape(n, shape[-1]), g.reshape(n, weight.shape[0])
        return (
            matmul_arrays(g, weight).reshape(shape) if need_x else None,
            matmul_arrays(g.T, x) if need_weight else None,
            g.sum(axis=0) if any(need_bias) else None,
        )

    @classmethod
    def translate_error(cls, error: Exception, arrays: list) -> Exception:
        return MatMul.translate_error(error, [arrays[0], arrays[1].T])

    @property
    def next_functions(ctx) -> tuple:  # the bias comes first in PyTorch's addmm
        x, weight, *bias = super().next_functions
        return (*bias, x, weight)

    def name(ctx) -> str:  # of the last of the calls that PyTorch makes
        names = ("Mm", "UnsafeView") if len(ctx.edges) == 2 else ("Addmm", "View")
        return names[len(ctx.outputs[0][0]) != 2] + "Backward0"


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: [..., n] with a weight [m, n] gives [..., m].

    Raises:
        RuntimeError: where shapes or types do not fit.
    """
    check_operands("linear", *(input, weight) if bias is None else (input, weight, bias))
    if weight.array.ndim != 2 or input.array.ndim == 0:
        product = matmul(input, weight.T if weight.array.ndim == 2 else weight)
        return product if bias is None else product + bias.expand_as(product)
    if bias is None:
        return Addmm.apply(input, weight)
    if bias.array.shape != weight.array.shape[:1]:
        product = Addmm.apply(input, weight)
        return product + bias.expand_as(product)  # which a bias of more dimensions refuses
    return Addmm.apply(input, weight, bias)


class Linear(Module):
    """y = x W^T + b, with `weight` [out_features, in_features] and `bias` [out_features]."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        b = Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", b)
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws weight and bias from [-b, b), b = 1 / sqrt(in_features), as PyTorch does."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for param in (self.weight, self.bias):  # not what a subclass adds
            if param is not None:
                param.uniform_(-bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Identity(Module):
    """Gives back its input; takes any arguments, so that it can stand in for any layer."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Makes the dimensions from start_dim to end_dim one: [n, c, h, w] -> [n, c * h * w]."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Gives dimension `dim` several sizes: Unflatten(1, (8, 8)) makes [n, 64] [n, 8, 8]."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]):
        super().__init__()
        if not all(isinstance(n, int) for n in (dim, *tuple(unflattened_size))):
            raise TypeError(f"dim and sizes must be ints, got {dim} and {unflattened_size}")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    net = Sequential(Flatten(), Linear(12, 4), Unflatten(1, (2, 2)))
    print(net)
    # -> Sequential(
    # ->   (0): Flatten(start_dim=1, end_dim=-1)
    # ->   (1): Linear(in_features=12, out_features=4, bias=True)
    # ->   (2): Unflatten(dim=1, unflattened_size=(2, 2))
    # -> )
    print(net(randn(5, 3, 4)).shape)  # -> tinytorch.Size([5, 2, 2])
    net[1] = Identity(12, 4, bias=False)
    print(net[:2](randn(5, 3, 4)).shape)  # -> tinytorch.Size([5, 12])
    try:
        Unflatten(1, (2.0, 2))
    except TypeError as error:
        print(error)
    # -> dim and sizes must be ints, got 1 and (2.0, 2)
