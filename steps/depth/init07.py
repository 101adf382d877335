"""Step init07: prelu: a learned slope

The slope of leaky_relu below 0 has to be chosen: 0.01, or 0.2? He et al. (step init02) learn it
instead: the slope is a parameter, one for the layer or one for each channel.

    prelu(x) = x where x > 0, w x elsewhere        dL/dw = sum of g x over all x <= 0

It needs no Function of its own, because where and the product have derivatives. The module is
written by hand, because it has a parameter; FunctionModule (step activation11) would make it a
buffer.

The trap: weight decay (step optimizer11) pulls a learned slope towards 0, that is, to relu.
PyTorch's documentation advises against it here.

New: prelu, PReLU. Moved: tinytorch/nn/init.py. tinytorch/nn/functional.py collects all functions.
Try: learn |x| with one slope for each of the 21 numbers: PReLU(21), and x of the shape [1, 21].
Which slopes stay 0.25, and why?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import full

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """leaky_relu with slopes that are learned: one, or one for each channel (dimension 1).

    Raises:
        RuntimeError: for another number of slopes.
    """
    shape, n = input.array.shape, weight.numel()
    if weight.array.ndim > 1 or n not in (1, shape[1] if shape[1:] else 1):
        raise RuntimeError(f"prelu: weight {weight.shape} does not fit an input of {input.shape}")
    weight = weight.reshape([] if n == 1 else [n, *[1] * (len(shape) - 2)])
    return where(input > 0, input, weight * input)


class PReLU(Module):
    """prelu as a module, with `num_parameters` slopes that start at `init`."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    # A slope that is learned: |x| is x above 0 and -x below, so it has to become -1.
    x, bend = linspace(-1, 1, 21), PReLU()
    for _ in range(100):
        bend.zero_grad()
        mse_loss(bend(x), x.abs()).backward()
        with no_grad():
            bend.weight -= bend.weight.grad
    print(bend, f"starts with 0.25 and learns {bend.weight.item():.2f}")
    # -> PReLU(num_parameters=1) starts with 0.25 and learns -1.00

    # One slope for each channel, or one for all.
    y = prelu(tensor([[-1.0, -1.0], [2.0, 2.0]]), tensor([0.5, 0.1]))
    print(y, PReLU(2)(randn(4, 2, 3)).shape)
    # -> tensor([[-0.5000, -0.1000],
    # ->         [ 2.0000,  2.0000]]) tinytorch.Size([4, 2, 3])
    try:
        prelu(randn(4, 3), tensor([0.5, 0.1]))
    except RuntimeError as error:
        print(error)
    # -> prelu: weight tinytorch.Size([2]) does not fit an input of tinytorch.Size([4, 3])
