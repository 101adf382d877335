"""Step distribution12: MultivariateNormal: numbers that depend on each other

Normal with 6 means draws 6 independent numbers. But a person's height and weight, or two joints of
one arm, depend on each other: if one is large, the other is likely to be large. The covariance, a
matrix, says how much.

    x = loc + L eps                        eps: independent; covariance L L^T (step distribution11)
    log p(x) = -|L^-1 (x - loc)|^2 / 2 - log det L - n log(2 pi) / 2

A draw is a product with L, so the gradient reaches loc and the covariance. The density needs L^-1
(x - loc), which is eps again, and det L, the product of the diagonal, since L is triangular.

The trap: a draw is a vector now. The last dimension of the parameters belongs to the event, and
log_prob gives one number for it, as Independent does (step distribution10).

New: MultivariateNormal.
Try: a covariance of [[1, 0], [0, 4]], and Independent(Normal(...), 1) with the same variances.
Compare log_prob of both.
"""

import importlib
import math
from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.distributions.distribution import Constraint, Distribution, lazy
from tinytorch.linalg import cholesky, solve
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.random import randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul slicing reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


vectors = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1))


class MultivariateNormal(Distribution):
    """Vectors loc + L eps, eps of independent standard normal numbers: their covariance is L L^T.

    Args:
        loc: the mean [..., n].
        covariance_matrix: L L^T, [..., n, n].
    Raises:
        ValueError: loc is a number.
    """

    has_rsample = True
    support = vectors
    arg_constraints = {"loc": vectors}

    def __init__(self, loc: Tensor, covariance_matrix: Tensor, validate_args: bool | None = None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        batch = broadcast_shapes(covariance_matrix.shape[:-2], loc.shape[:-1])
        self.loc, self.event_shape = loc.expand(*batch, -1), Size(loc.shape[-1:])
        self.covariance_matrix = covariance_matrix.expand(*batch, -1, -1)
        super().__init__(Size(batch), validate_args)

    @lazy
    def root(self) -> Tensor:
        """L."""
        return cholesky(self.covariance_matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.root.square().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape) + self.batch_shape + self.event_shape
        eps = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.root @ eps.unsqueeze(-1)).squeeze(-1)

    def half_log_det(self) -> Tensor:
        """log det L: half of that of the covariance."""
        return self.root.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """-|L^-1 (value - loc)|^2 / 2 - log det L - n log(2 pi) / 2."""
        self.check_value(value)
        z = solve(self.root, (value - self.loc).unsqueeze(-1)).squeeze(-1)
        n = self.event_shape[0]
        return -0.5 * (z * z).sum(-1) - self.half_log_det() - 0.5 * n * math.log(2 * math.pi)

    def entropy(self) -> Tensor:
        return self.half_log_det() + 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))


if __name__ == "__main__":
    importlib.import_module("tinytorch.autograd.backward")
    from tinytorch.core.tensor import tensor
    from tinytorch.distributions.independent import Independent
    from tinytorch.distributions.normal import Normal
    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    covariance = tensor([[4.0, 3.0], [3.0, 9.0]], requires_grad=True)
    both = MultivariateNormal(tensor([1.0, 2.0]), covariance)
    print(both.batch_shape, both.event_shape, both.sample((5,)).shape)
    # -> tinytorch.Size([]) tinytorch.Size([2]) tinytorch.Size([5, 2])
    draws = both.sample((20000,)) - both.mean
    found = draws.T @ draws / 20000
    print((found - covariance).abs().max().item() < 0.2, both.variance.tolist())
    # -> True [4.0, 9.0]
    both.rsample((10,)).sum().backward()
    print(covariance.grad.shape)  # -> tinytorch.Size([2, 2])

    x = tensor([[2.0, 5.0], [2.0, -1.0]])  # as likely for independent numbers, and not here
    alone = Independent(Normal(tensor([1.0, 2.0]), tensor([2.0, 3.0])), 1)
    print(alone.log_prob(x).tolist())  # -> [-4.254637, -4.254637]
    print(both.log_prob(x).tolist())  # -> [-3.985795, -4.652462]
    print(both.entropy().item() < alone.entropy().item(), both.mode.tolist())
    # -> True [1.0, 2.0]
    try:
        MultivariateNormal(tensor(1.0), covariance)
    except ValueError as error:
        print(error)  # -> loc must be at least one-dimensional.
