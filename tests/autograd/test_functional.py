"""Jacobians, Hessians and their products, where the answers are known by hand."""

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd.functional import hessian, hvp, jacobian, jvp, vjp

A = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def make(values, device, **options):
    return tinytorch.tensor(values, dtype=tinytorch.float64, device=device, **options)


def values(x):
    return x.numpy(force=True)


def test_a_linear_function_is_its_own_jacobian(device):
    matrix, x, v = make(A, device), make([1.0, -1.0, 2.0], device), make([0.5, 1.0, 2.0], device)

    def f(x):
        return matrix @ x

    np.testing.assert_allclose(values(jacobian(f, x)), A)
    np.testing.assert_allclose(values(jvp(f, x, v)[1]), np.array(A) @ values(v))
    out, row = vjp(f, x, make([1.0, 10.0], device))
    np.testing.assert_allclose(values(out), [5.0, 11.0])
    np.testing.assert_allclose(values(row), [41.0, 52.0, 63.0])


def test_a_quadratic_form_has_a_constant_hessian(device):
    m = np.arange(9.0).reshape(3, 3)
    matrix, x = make(m.tolist(), device), make([1.0, -1.0, 2.0], device)

    def f(x):
        return x @ (matrix @ x)

    np.testing.assert_allclose(values(hessian(f, x)), m + m.T)
    value, product = hvp(f, x, make([1.0, 0.0, -1.0], device))
    np.testing.assert_allclose(values(value), values(x) @ m @ values(x))
    np.testing.assert_allclose(values(product), (m + m.T) @ [1.0, 0.0, -1.0])


def test_shapes_for_several_inputs_and_outputs(device):
    x, y = make(A, device), make([1.0, 2.0, 3.0], device)
    rows = jacobian(lambda x, y: (x * y, y.sum()), (x, y))
    assert [[part.shape for part in row] for row in rows] == [
        [(2, 3, 2, 3), (2, 3, 3)],
        [(2, 3), (3,)],
    ]
    assert values(rows[1][0]).tolist() == np.zeros((2, 3)).tolist()  # y.sum() has no x in it
    second = hessian(lambda x, y: (x * y).sum(), (x, y))
    assert second[0][1].shape == (2, 3, 3) and not values(second[0][0]).any()
    assert jacobian(lambda x: x[:0], y).shape == (0, 3)


def test_results_are_differentiable_only_if_asked(device):
    x = make([2.0], device, requires_grad=True)
    assert not hessian(lambda x: (x**3).sum(), x).requires_grad
    second = hessian(lambda x: (x**3).sum(), x, create_graph=True)
    second.sum().backward()
    assert (values(second).item(), values(x.grad).item()) == (12.0, 6.0)


def test_create_graph_holds_within_no_grad(device):
    x = make([1.0, 2.0], device, requires_grad=True)
    v = make([1.0, 1.0], device)
    with tinytorch.no_grad():
        slope = vjp(lambda x: x**3, x, v, create_graph=True)[1]
        table = jacobian(lambda x: x**3, x, create_graph=True)
    assert values(slope).tolist() == [3.0, 12.0]
    assert values(table).tolist() == [[3.0, 0.0], [0.0, 12.0]]
    (slope + table.sum(0)).sum().backward()
    assert values(x.grad).tolist() == [12.0, 24.0]


def test_what_cannot_be_right_is_refused(device):
    x = make([1.0, 2.0], device)
    with pytest.raises(RuntimeError, match="single element"):
        hessian(lambda x: x * x, x)
    with pytest.raises(RuntimeError, match="can only be None if the output"):
        vjp(lambda x: x * x, x)
    with pytest.raises(
        RuntimeError, match=r"v has the shapes \[\(3,\)\], and the input \[\(2,\)\]"
    ):
        jvp(lambda x: x * x, x, make([1.0, 2.0, 3.0], device))
    with pytest.raises(RuntimeError, match="do not depend on input 1"):
        jacobian(lambda x, y: x * x, (x, x), strict=True)
    with pytest.raises(TypeError, match="one is a float"):
        jacobian(lambda x: x, (1.0,))
    with pytest.raises(TypeError, match="gave a int"):
        jacobian(lambda x: 3, x)
