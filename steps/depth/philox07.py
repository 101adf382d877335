"""Step philox07: Filling in place: uniform_, normal_, exponential_

A weight is a tensor that other objects hold: the layer, the optimizer, a list of parameters. `w =
rand(3) * 2 - 1` makes another tensor, and the layer still has the old one. It also allocates memory
three times.

Functions that fill a tensor in place, and return it, end in an underscore like all that write:

    w.uniform_(-1, 1)       low + (high - low) u
    w.normal_(0, 0.02)      mean + std z
    w.exponential_(4)       -log(1 - u) / 4       waiting times, 1/4 on average

These are in-place writes, so the rules of step 66c hold. A leaf that requires gradients may be
filled only under no_grad(). Elsewhere, the old elements have no part in the result, so no gradient
goes back to them: `overwrite` records that.

The trap is in the last line of the table. With the 24 bits of a float32, u is 0 once in 17 million
draws. Then the waiting time is 0, and a program that divides by it gets inf. So it is drawn in
float64, with 53 bits. (And -log(u) would be inf itself: step philox04.)

`from` is a word of Python and cannot name a parameter, but it can be passed: uniform_(**{"from": 2,
"to": 3}). PyTorch has that name, so it is taken out of **names.

New: fill_with, uniform_, normal_, exponential_.
Try: w.uniform_(0, 1) in the demo, outside of no_grad(), with requires_grad=True. What is refused?
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import check_writable, overwrite
from tinytorch.core.tensor import Tensor, tensor_method, wrap
from tinytorch.ops.random import Generator, generator_for
from tinytorch.ops.scalar import checked_number


def fill_with(self: Tensor, array: Any) -> Tensor:
    """Writes random numbers into a tensor. Its old elements have no part in the result."""
    check_writable(self)
    return overwrite(self, wrap(array.astype(self.array.dtype), self.device))


@tensor_method("uniform_")
def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **names: Any
) -> Tensor:
    """Fills with numbers from [from, to). `from` is a Python keyword, so pass it as the first
    argument.

    Raises:
        RuntimeError: `from` is above `to`, or one of them is not finite or does not fit the type.
    """
    low, to = float(names.pop("from", from_)), float(to)
    for bound in (low, to):
        checked_number(bound, self.dtype)
    if not (math.isfinite(low) and math.isfinite(to) and low <= to):
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    draws = generator_for(self.device, generator).source.uniform(self.array.shape, self.array.dtype)
    return fill_with(self, draws * (to - low) + low)


@tensor_method("normal_")
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills with normal numbers.

    Raises:
        RuntimeError: `std` is negative.
    """
    mean, std = float(mean), float(std)
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    draws = generator_for(self.device, generator).source.normal(self.array.shape, self.array.dtype)
    return fill_with(self, draws * std + mean)


@tensor_method("exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with waiting times, 1 / lambd on average. They are drawn in float64, where the
    probability of a 0, whose logarithm is infinite, is negligible.

    Raises:
        RuntimeError: `lambd` is not above 0, or the type is an integer type.
    """
    if not lambd > 0 or not self.is_floating_point():
        raise RuntimeError(f"exponential_ expects lambda > 0.0 and floats, but found {lambd}")
    source, wide = generator_for(self.device, generator).source, np.dtype(np.float64)
    return fill_with(self, -self.device.xp.log1p(-source.uniform(self.array.shape, wide)) / lambd)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.autograd.modes import no_grad
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.dtype import float16
    from tinytorch.ops import arithmetic, minmax, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.creation import ones, zeros
    from tinytorch.ops.random import manual_seed, rand

    def attempt(action):
        try:
            return action()
        except RuntimeError as error:
            return error

    manual_seed(0)
    w = zeros(3)
    layer = {"weight": w}
    w = rand(3) * 2 - 1
    print("the layer has", layer["weight"].tolist())  # -> the layer has [0.0, 0.0, 0.0]
    w = layer["weight"]
    w.uniform_(-1, 1)
    print("now it has numbers:", all(v != 0 for v in layer["weight"].tolist()))
    # -> now it has numbers: True

    x = zeros(10_000).uniform_(-1, 3)
    print(f"uniform: {x.min().item():.1f} to {x.max().item():.1f}, mean {x.mean().item():.1f}")
    # -> uniform: -1.0 to 3.0, mean 1.0
    x.normal_(5.0, 2.0)
    print(f"normal: {x.mean().item():.1f} and {x.std().item():.1f}")  # -> normal: 5.0 and 2.0
    x.exponential_(4.0)
    print(f"waiting times: {x.mean().item():.2f}")  # -> waiting times: 0.25
    print("the type stays:", zeros(2, dtype=float16).normal_().dtype)
    # -> the type stays: tinytorch.float16
    two = zeros(1000).uniform_(**{"from": 2, "to": 3})
    print(2 <= two.min().item() <= two.max().item() <= 3)  # -> True

    leaf = ones(2, requires_grad=True)
    print("a leaf:", str(attempt(lambda: leaf.normal_()))[:40])
    # -> a leaf: a leaf Variable that requires grad is be
    with no_grad():
        leaf.normal_()
    product = leaf * 3
    product.normal_()
    product.sum().backward()
    print("through new numbers:", leaf.grad.tolist())  # -> through new numbers: [0.0, 0.0]

    print(attempt(lambda: x.uniform_(3, 1)))
    # -> uniform_ expects to return a [from, to) range, but found from=3.0 > to=1.0
    print(attempt(lambda: x.normal_(0, -1)))  # -> normal expects std >= 0.0, but found std -1.0
    print(attempt(lambda: x.exponential_(0)))
    # -> exponential_ expects lambda > 0.0 and floats, but found 0
