"""Linear layers: every output is a weighted sum of all inputs, plus a bias."""

import math
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.einsum import einsum
from tinytorch.ops.matmul import MatMul, check_operands, matmul, matmul_arrays


class Addmm(Function):
    """Y = X W^T + b;   dL/dX = G W,   dL/dW = G^T X,   dL/db = the sum of the rows of G.

    One node instead of three, and no gradient of W^T that would have to be turned round.
    """

    def forward(ctx, x: Any, weight: Any, bias: Any = None) -> Any:
        ctx.save_for_backward(x, weight)
        rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
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
    def explain(cls, error: Exception, arrays: list) -> Exception:
        return MatMul.explain(error, [arrays[0], arrays[1].T])

    def name(ctx) -> str:  # of the last of the calls that PyTorch makes
        names = ("Mm", "UnsafeView") if len(ctx.edges) == 2 else ("Addmm", "View")
        return names[len(ctx.outputs[0][0]) != 2] + "Backward0"


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: [..., n] with a weight [m, n] gives [..., m].

    RuntimeError where shapes or types do not fit.
    """
    check_operands("linear", input, weight)
    if weight.array.ndim != 2 or input.array.ndim == 0:
        product = matmul(input, weight.T if weight.array.ndim == 2 else weight)
        return product if bias is None else product + bias
    if bias is None:
        return Addmm.apply(input, weight)
    check_operands("linear", input, bias)
    if bias.array.shape != weight.array.shape[:1]:
        return Addmm.apply(input, weight) + bias
    return Addmm.apply(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 weight[k] input2, for each k, plus bias: [..., n], [..., m], [p, n, m] -> [..., p]."""
    product = einsum("...i,kij,...j->...k", input1, weight, input2)
    return product if bias is None else product + bias


class Layer(Module):
    """What layers with a weight and a bias share: they start as uniform random numbers."""

    _sizes: tuple[str, ...]  # the attributes that the text shows

    def _make(self, shape: tuple, bias: bool, fan_in: int, **options: Any) -> None:
        """Registers `weight` of that shape, and `bias` or None; fan_in inputs meet an output."""
        self._fan_in = fan_in
        self.weight = Parameter(empty(*shape, **options))
        self.register_parameter("bias", Parameter(empty(shape[0], **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias from [-b, b), b = 1 / sqrt(fan_in), as PyTorch does."""
        bound = 1 / math.sqrt(self._fan_in) if self._fan_in else 0.0
        with no_grad():
            for param in self.parameters(recurse=False):
                param.uniform_(-bound, bound)

    def extra_repr(self) -> str:
        sizes = "".join(f"{name}={getattr(self, name)}, " for name in self._sizes)
        return f"{sizes}bias={self.bias is not None}"


class Linear(Layer):
    """y = x W^T + b, with `weight` [out_features, in_features] and `bias` [out_features]."""

    _sizes = ("in_features", "out_features")

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._make((out_features, in_features), bias, in_features, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class Bilinear(Layer):
    """y_k = x1^T W_k x2 + b_k, with `weight` [out_features, in1_features, in2_features]."""

    _sizes = ("in1_features", "in2_features", "out_features")

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self._make(shape, bias, in1_features, device=device, dtype=dtype)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return bilinear(input1, input2, self.weight, self.bias)


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
