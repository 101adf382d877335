"""Step 72g: Layers

The most common layer of all is y = x W^T + b: each output is a weighted sum of all inputs. Written
with operations it leaves three nodes in the graph (transpose, product, sum), and its backward has
to transpose the gradient of W^T again. A single Function computes only what is needed:

    dL/dX = G W          dL/dW = G^T X          dL/db = the sum of the rows of G

The weight has the shape [outputs, inputs], as in PyTorch: G^T X comes out in this shape, and
weights saved by PyTorch fit. A batch of any shape [..., inputs] is treated as a stack of rows. If
these are few, (W X^T)^T takes half the time of X W^T: the same numbers, in the other order.

Which numbers does a layer start with? Not zeros: all outputs would be the same, get the same
gradient, and stay the same for ever. Linear draws from [-1/sqrt(n), 1/sqrt(n)) for n inputs, so
that a sum of n terms does not grow with n. (PyTorch writes kaiming_uniform_(a=sqrt(5)), which comes
to exactly that. Step 75g tells the whole story.)

There are also layers that only change shapes (Flatten, Unflatten), and one that does nothing, to
take the place of a layer that was removed (Identity). Dropout behaves differently in training and
in use: in training it sets each element to 0 with probability p. No output can rely on any other,
which makes it harder to learn the data by heart (Srivastava et al., 2014). The rest is multiplied
by 1 / (1 - p), so the expected value stays the same, and eval() has nothing to correct. The trap:
forget eval(), and the trained network gives random answers.

New: Addmm, linear; Linear, Identity, Flatten, Unflatten; dropout, Dropout. Moved: Module to
nn/module.py, what hooks need to nn/hooks.py.
Try: in dropout leave out `.mul_(1 / (1 - p))`, and see what becomes of the mean.
"""

import importlib
import math
import timeit
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.container import Sequential
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty, ones
from tinytorch.ops.matmul import MatMul, check_operands, matmul, matmul_arrays
from tinytorch.ops.random import manual_seed, rand, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise extremes reduction sampling shape".split():
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
        for param in self.parameters(recurse=False):
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


def check_probability(p: float) -> float:
    """p itself. Raises ValueError where it is not a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def drop_units(input: Tensor, shape: tuple, p: float, training: bool, inplace: bool) -> Tensor:
    """input times a mask of the given shape: 0 with probability p, and else 1 / (1 - p)."""
    if check_probability(p) == 0 or not training:
        return input
    mask = (rand(shape, device=input.device) >= p).to(input.dtype)
    mask = mask if p == 1 else mask.mul_(1 / (1 - p))
    return input.mul_(mask) if inplace else input * mask


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p. The others are multiplied by 1 / (1 - p), so that the
    expected value stays the same, and nothing has to be done when the network is used."""
    return drop_units(input, input.array.shape, p, training, inplace)


class Dropout(Module):
    """dropout, in training only: eval() switches it off."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        self.p, self.inplace = check_probability(p), inplace

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


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

    # One node, and the same gradients as three.
    x, layer = randn(64, 100), Linear(100, 50)
    print(layer)  # -> Linear(in_features=100, out_features=50, bias=True)
    print([type(node).__name__ for node, _ in layer(x).grad_fn.next_functions if node])
    # -> ['AccumulateGrad', 'AccumulateGrad']
    print([tuple(n.variable.shape) for n, _ in layer(x).grad_fn.next_functions if n])
    # -> [(50,), (50, 100)]

    def composed(x):
        return x @ layer.weight.T + layer.bias

    def gradients(function):
        layer.zero_grad()
        function(x).square().sum().backward()
        return layer.weight.grad, layer.bias.grad

    pairs = zip(gradients(layer), gradients(composed), strict=True)
    print("same gradients:", all((a - b).abs().max().item() < 1e-3 for a, b in pairs))
    # -> same gradients: True
    one, three = (
        min(timeit.repeat(lambda f=f: gradients(f), number=50)) for f in (layer, composed)
    )
    print(f"one node takes {one / three:.2f} of the time of three")  # -> ...

    # Eight rows, written either way.
    few, wide = randn(8, 1000).array, randn(1000, 1000).array
    row_by_row, turned = (
        min(timeit.repeat(f, number=5)) for f in (lambda: few @ wide.T, lambda: (wide @ few.T).T)
    )
    print(f"(W X^T)^T takes {turned / row_by_row:.2f} of the time of X W^T")  # -> ...

    # A batch of any shape; the bias is added to each row, so its gradient is a sum over rows.
    print(layer(randn(2, 3, 100)).shape, layer(randn(100)).shape)
    # -> tinytorch.Size([2, 3, 50]) tinytorch.Size([50])
    try:
        layer(randn(64, 99))
    except RuntimeError as error:
        print(str(error).partition(", of")[0])
    # -> mat1 and mat2 shapes cannot be multiplied (64x99 and 100x50)

    # The first numbers.
    print("largest weight below 1/sqrt(100):", 0.099 < layer.weight.abs().max().item() < 0.1)
    # -> largest weight below 1/sqrt(100): True

    # Linear regression: y = 3 x + 2, from points with noise.
    points = randn(200, 1)
    target = 3 * points + 2 + 0.1 * randn(200, 1)
    line = Linear(1, 1)
    for _ in range(200):
        (line(points) - target).square().mean().backward()
        with no_grad():
            for param in line.parameters():
                param -= 0.1 * param.grad
        line.zero_grad()
    print(f"y = {line.weight.item():.1f} x + {line.bias.item():.1f}")  # -> y = 3.0 x + 2.0

    # Units that start alike stay alike.
    def different_units(start):
        """How many of four hidden units differ after training, if all numbers were `start`."""
        hidden, out = Linear(1, 4), Linear(4, 1)
        params = [*hidden.parameters(), *out.parameters()]
        for param in params if start is not None else ():
            param.data.fill_(start)
        for _ in range(50):
            (out(hidden(points).tanh()) - target).square().mean().backward()
            with no_grad():
                for param in params:
                    param -= 0.1 * param.grad
                    param.grad = None
        return len({round(weight, 5) for [weight] in hidden.weight.tolist()})

    print("all zero, all 0.5, as drawn:", *map(different_units, (0.0, 0.5, None)))
    # -> all zero, all 0.5, as drawn: 1 1 4

    # Shapes.
    shapes = Sequential(Flatten(), Linear(12, 4), Identity())
    print(shapes(randn(5, 3, 4)).shape)  # -> tinytorch.Size([5, 4])
    print(Unflatten(1, (2, 2)), Unflatten(1, (2, 2))(shapes(randn(5, 3, 4))).shape)
    # -> Unflatten(dim=1, unflattened_size=(2, 2)) tinytorch.Size([5, 2, 2])
    try:
        Unflatten(1, (2.0, 2))
    except TypeError as error:
        print(error)  # -> dim and sizes must be ints, got 1 and (2.0, 2)

    # Dropout.
    drop, many = Dropout(0.25), ones(100, 1000)
    y = drop(many)
    kept, largest, mean = (y > 0).float().mean().item(), y.max().item(), y.mean().item()
    print(f"{kept:.2f} of all are kept, each is {largest:.4f}, the mean {mean:.2f}")
    # -> 0.75 of all are kept, each is 1.3333, the mean 1.00
    print("in use nothing changes:", drop.eval()(many) is many)  # -> in use nothing changes: True
    print(dropout(tensor([1.0, 2.0]), p=1.0))  # -> tensor([0., 0.])
