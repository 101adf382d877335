"""PReLU: an activation with something to learn, the slope below 0."""

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.comparison import where
from tinytorch.ops.creation import full


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
