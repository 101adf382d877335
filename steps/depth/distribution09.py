"""Step distribution09: The uniform distribution: a support that depends on the parameters

An angle of which nothing is known is drawn between 0 and 2 pi, and a flow begins with a cube in
which all points are equally likely. The density is 1 / (high - low) inside, and 0 outside:

    log p(x) = log(low <= x < high) - log(high - low)          log 1 = 0,  log 0 = -inf

So one comparison gives both cases. A draw is low + eps * (high - low): with eps from rand, a
gradient reaches both ends, as in step distribution05.

The trap: what a value may be differs from member to member of a batch. The support is a property,
a constraint made of the two tensors. And `high` itself is in the support, although its density is
0, as in PyTorch.

New: Uniform.
Try: validate_args=False, and the log_prob of a value outside.
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Constraint, Distribution, broadcast_all, real
from tinytorch.ops.random import manual_seed, rand

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Uniform(Distribution):
    """Every number from `low` on and below `high` is equally likely.

    Raises:
        ValueError: `low` is not below `high`.
    """

    has_rsample = True
    arg_constraints = {"low": real, "high": real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low >= high")

    @property
    def support(self) -> Constraint:
        says = f"Interval(lower_bound={self.low}, upper_bound={self.high})"
        return Constraint(says, lambda x: (x >= self.low) & (x <= self.high))

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape) + self.batch_shape
        eps = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + eps * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self.check_value(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")
    manual_seed(0)
    low, high = Tensor([0.0, 1.0]).requires_grad_(), Tensor([2.0, 5.0])
    angle = Uniform(low, high)
    print(angle.mean.tolist(), angle.variance.tolist(), angle.entropy().exp().tolist())
    # -> [1.0, 3.0] [0.333333, 1.333333] [2.0, 4.0]
    print(angle.log_prob(Tensor([1.0, 5.0])).tolist())  # -> [-0.693147, -inf]
    draws = angle.rsample((1000,))
    print(draws.shape, (draws >= low).all().item(), (draws < high).all().item())
    # -> tinytorch.Size([1000, 2]) True True
    draws.mean(0).sum().backward()
    print(low.grad)  # -> tensor([..., ...])
    for wrong in (lambda: Uniform(1.0, 1.0), lambda: angle.log_prob(Tensor([3.0, 3.0]))):
        try:
            wrong()
        except ValueError as error:
            print(str(error)[:42])
    # -> Uniform is not defined when low >= high
    # -> Expected value argument (Tensor of shape (
