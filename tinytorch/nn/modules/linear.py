"""Linear layers: every output is a weighted sum of all inputs, plus a bias."""

import math
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.matmul import MatMul, check_operands, matmul, matmul_arrays


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
