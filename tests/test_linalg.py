"""Linear algebra: values, first and second derivatives, and what is refused."""

import numpy as np
import pytest

import tinytorch
from tinytorch import linalg, tensor
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck


def matrices(*shape, device, seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape)
    if shape[-1:] == shape[-2:-1]:
        numbers = numbers + 4 * np.eye(shape[-1])
    return tensor(numbers, device=device, requires_grad=True)


SHAPES = [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3)), ((2, 1, 3, 3), (4, 3, 2))]


@pytest.mark.parametrize("a, b", SHAPES)
def test_a_solution_solves_and_is_differentiated_twice(a, b, device):
    A, B = matrices(*a, device=device), matrices(*b, device=device, seed=1)
    X = linalg.solve(A, B)
    product = (A @ X.unsqueeze(-1)).squeeze(-1) if b in ((3,), (2, 3)) else A @ X
    assert tinytorch.allclose(product, B.expand(product.shape))
    assert gradcheck(linalg.solve, (A, B)) and gradgradcheck(linalg.solve, (A, B))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
def test_the_inverse(shape, device):
    A = matrices(*shape, device=device)
    expected = np.linalg.inv(A.detach().cpu().numpy())
    np.testing.assert_allclose(linalg.inv(A).detach().cpu().numpy(), expected)
    assert gradcheck(linalg.inv, (A,)) and gradgradcheck(linalg.inv, (A,))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 1), (0, 0)])
def test_the_cholesky_decomposition(shape, device):
    A = matrices(*shape, device=device)
    covariance = A @ A.mT
    expected = np.linalg.cholesky(covariance.detach().cpu().numpy())
    for lower in (linalg.cholesky(covariance), linalg.cholesky(covariance, upper=True).mT):
        np.testing.assert_allclose(lower.detach().cpu().numpy(), expected, atol=1e-12)

    def function(A):
        return linalg.cholesky(A @ A.mT)

    assert gradcheck(function, (A,)) and gradgradcheck(function, (A,))
    with pytest.raises(linalg.LinAlgError, match="not positive definite"):
        linalg.cholesky(tensor([[1.0, 2.0], [2.0, 1.0]], device=device))
    for wrong in (np.nan, np.inf):
        with pytest.raises(linalg.LinAlgError, match="nan or inf"):
            linalg.cholesky(tensor([[wrong, 0.0], [0.0, 1.0]], device=device))


def test_cholesky_reads_one_triangle(device):
    A = tensor([[4.0, 2.0], [99.0, 10.0]], device=device)
    assert linalg.cholesky(A, upper=True).tolist() == [[2.0, 1.0], [0.0, 3.0]]
    assert linalg.cholesky(A.mT).tolist() == [[2.0, 0.0], [1.0, 3.0]]


def test_errors(device):
    A = matrices(3, 3, device=device)
    for wrong in (matrices(3, 2, device=device), A[0], A.long(), A.half()):
        with pytest.raises(RuntimeError, match="linalg.inv"):
            linalg.inv(wrong)
    with pytest.raises(linalg.LinAlgError, match="ingular"):
        linalg.solve(tinytorch.ones(2, 2, device=device), tinytorch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="differ in type"):
        linalg.solve(A, tinytorch.ones(3, device=device))
    with pytest.raises(RuntimeError, match="Incompatible shapes"):
        linalg.solve(A, tinytorch.ones(2, 1, dtype=tinytorch.float64, device=device))
