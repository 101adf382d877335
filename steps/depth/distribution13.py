"""Step distribution13: MultivariateNormal by three matrices, and their checks

A program may have L itself (from a network, for example), the covariance, or its inverse, the
precision, which says how strongly two numbers are coupled when all others are known. It gives one
of the three; each other one is computed when it is first read:

    scale_tril  <->  covariance_matrix = L L^T  <->  precision_matrix = (L L^T)^-1

A matrix that is not positive definite is not a covariance: the variance in some direction would be
zero or negative. For each of the three there is a condition, checked as those of the other
distributions.

The trap: a matrix that is symmetric up to rounding should pass, but one with the rows [1, 2] and
[0, 1] should not. The eigenvalues of both are positive, so symmetry is checked by itself, with a
tolerance.

New: is_positive_definite, two constraints. Changed: MultivariateNormal.
Try: validate_args=False with a matrix that is not positive definite, and draw a sample. Where does
it fail then?
"""

import importlib
import math
from typing import Any

from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.distributions.distribution import Constraint, Distribution, lazy
from tinytorch.linalg import cholesky, inv, solve
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.random import randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul slicing reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


vectors = Constraint("IndependentConstraint(Real(), 1)", lambda x: (x == x).all(-1))


def is_positive_definite(x: Tensor) -> Tensor:
    """Of each matrix, whether it is symmetric and all its eigenvalues are above 0."""
    symmetric = ((x - x.mT).abs() <= 1e-6 + 1e-5 * x.mT.abs()).all(-1).all(-1)
    return symmetric & wrap((x.device.xp.linalg.eigvalsh(x.array) > 0).all(-1), x.device)


positive_definite = Constraint("PositiveDefinite()", is_positive_definite)
lower_cholesky = Constraint(
    "LowerCholesky()",
    lambda x: (x.tril() == x).all(-1).all(-1) & (x.diagonal(0, -2, -1) > 0).all(-1),
)


class MultivariateNormal(Distribution):
    """Vectors loc + L eps, eps of independent standard normal numbers: their covariance is L L^T.

    Args:
        loc: the mean [..., n].
        covariance_matrix, precision_matrix, scale_tril: L L^T, its inverse, or L, lower triangular,
            [..., n, n]. Give one of the three.
    Raises:
        ValueError: not one of the three, or one that is not such a matrix.
    """

    has_rsample = True
    support = vectors
    arg_constraints = {
        "loc": vectors,
        "covariance_matrix": positive_definite,
        "precision_matrix": positive_definite,
        "scale_tril": lower_cholesky,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = (covariance_matrix, precision_matrix, scale_tril)
        given = [(n, m) for n, m in zip(list(self.arg_constraints)[1:], matrices, strict=True)]
        given = [(name, matrix) for name, matrix in given if matrix is not None]
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = given
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with batches in front")
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc, self.event_shape = loc.expand(*batch, -1), Size(loc.shape[-1:])
        vars(self)[name] = matrix.expand(*batch, -1, -1)
        super().__init__(Size(batch), validate_args)

    @lazy
    def root(self) -> Tensor:
        """L, of whichever matrix was given."""
        if "scale_tril" in vars(self):
            return self.scale_tril
        by_inverse = "precision_matrix" in vars(self)
        return cholesky(inv(self.precision_matrix) if by_inverse else self.covariance_matrix)

    @lazy
    def scale_tril(self) -> Tensor:
        return self.root

    @lazy
    def covariance_matrix(self) -> Tensor:
        return self.root @ self.root.mT

    @lazy
    def precision_matrix(self) -> Tensor:
        return inv(self.root @ self.root.mT)

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
    from tinytorch.core.tensor import tensor

    loc, covariance = tensor([1.0, 2.0]), tensor([[4.0, 3.0], [3.0, 9.0]])
    one = MultivariateNormal(loc, covariance)
    print(one)
    # -> MultivariateNormal(loc: tinytorch.Size([2]), covariance_matrix: tinytorch.Size([2, 2]))
    x = tensor([2.0, 5.0])
    for name in ("covariance_matrix", "precision_matrix", "scale_tril"):
        same = MultivariateNormal(loc, **{name: getattr(one, name)})
        print(f"{same.log_prob(x).item():.4f} {same.covariance_matrix[0, 1].item():.4f}")
    # -> -3.9858 3.0000
    # -> -3.9858 3.0000
    # -> -3.9858 3.0000
    for wrong in (
        lambda: MultivariateNormal(loc),
        lambda: MultivariateNormal(loc, covariance[0]),
        lambda: MultivariateNormal(loc, tensor([[1.0, 2.0], [2.0, 1.0]])),
        lambda: MultivariateNormal(loc, tensor([[1.0, 2.0], [0.0, 1.0]])),
        lambda: MultivariateNormal(loc, scale_tril=covariance),
        lambda: one.log_prob(x[[0, 1, 1]]),
    ):
        try:
            wrong()
        except ValueError as error:
            print(str(error).splitlines()[0][:80])
    # -> Exactly one of covariance_matrix or precision_matrix or scale_tril may be specif
    # -> covariance_matrix must be at least two-dimensional, with batches in front
    # -> Expected parameter covariance_matrix (Tensor of shape (2, 2)) of distribution Mu
    # -> Expected parameter covariance_matrix (Tensor of shape (2, 2)) of distribution Mu
    # -> Expected parameter scale_tril (Tensor of shape (2, 2)) of distribution Multivari
    # -> Value is not broadcastable with batch_shape: Shape mismatch: objects cannot be b
