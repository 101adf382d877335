"""The normal distribution of vectors, whose elements may depend on each other."""

import math
from typing import Any

from tinytorch.core.tensor import Size, Tensor, wrap
from tinytorch.distributions.distribution import Constraint, Distribution, lazy
from tinytorch.linalg import cholesky, inv, solve
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.random import randn

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
