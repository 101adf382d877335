"""Step layers10: Dropout: p = 0, p = 1, and in place

What does step layers09 do with p = 1? It divides by zero. With p = 1.5 it drops everything, the
factor is negative, and there is no error. With p = 0 it draws a number for each element and drops
none. The demo begins with the factor for 1.5 and 1.

    p outside of [0, 1]     ValueError, when the layer is made and when it is called
    p = 0                   the input itself
    p = 1                   zeros, without scaling

inplace=True writes the result into the input's memory, which saves an array of that size.

A new function, drop_units, draws the mask; the shape of the mask is an argument. A mask smaller
than the input is broadcast: with shape [n, 1] it drops whole rows. Neighbouring pixels are nearly
equal, so dropping single ones hides little; step weightnorm01 drops whole channels.

The trap of inplace: it may overwrite a value that an earlier node saved, and then backward raises
an error (step 66b). After a linear layer it is safe, because Addmm does not save its output.

Changed: dropout, Dropout. New: check_probability, drop_units.
Try: a mask of the shape (1, 3). Which numbers are dropped together?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, rand

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


@checked
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


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    def scaled(p):
        return 1 / (1 - p)

    print("p = 1.5:", scaled(1.5))  # -> p = 1.5: -2.0
    try:
        scaled(1.0)
    except ZeroDivisionError as error:
        print("p = 1.0:", error)
    # -> p = 1.0: float division by zero
    for wrong in (1.5, -0.1):
        try:
            Dropout(wrong)
        except ValueError as error:
            print(error)
    # -> dropout probability has to be between 0 and 1, but got 1.5
    # -> dropout probability has to be between 0 and 1, but got -0.1
    x = tensor([1.0, 2.0])
    print(dropout(x, p=1.0), dropout(x, p=0.0) is x)  # -> tensor([0., 0.]) True
    print(Dropout(0.25, inplace=True), Dropout(1.0)(x))
    # -> Dropout(p=0.25, inplace=True) tensor([0., 0.])

    # In place, and where it is not allowed.
    y = x * 1
    print(dropout(y, inplace=True) is y, y.tolist())  # -> True [0.0, 0.0]
    y = tensor([1.0, 2.0], requires_grad=True).exp()
    try:
        dropout(y, inplace=True).sum().backward()
    except RuntimeError as error:
        print(str(error)[:67])
    # -> one of the variables needed for gradient computation has been modif

    # Whole rows.
    print(drop_units(ones(4, 3), (4, 1), 0.5, training=True, inplace=False))
    # -> tensor([[0., 0., 0.],
    # ->         [2., 2., 2.],
    # ->         [2., 2., 2.],
    # ->         [2., 2., 2.]])
