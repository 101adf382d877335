"""Sparse tensors, against the same tensors with all their elements."""

import pytest

import tinytorch


def drawn(device, n=4, m=5, count=7):
    places = tinytorch.stack([tinytorch.randint(n, (count,)), tinytorch.randint(m, (count,))])
    values = tinytorch.rand(count, dtype=tinytorch.float64).to(device).requires_grad_()
    return tinytorch.sparse_coo_tensor(places.to(device), values, (n, m)), values


def test_products_and_their_gradients(device):
    sparse, values = drawn(device)
    dense = sparse.to_dense()
    x = tinytorch.rand(5, 3, dtype=tinytorch.float64).to(device).requires_grad_()
    found = []
    for a in (sparse, dense):
        y = tinytorch.mm(a, x)
        found.append([y, *tinytorch.autograd.grad(y.square().sum(), [x, values])])
    assert all(a.allclose(b) for a, b in zip(*found, strict=True))
    for a in (tinytorch.spmm, tinytorch.matmul, tinytorch.sparse.mm, lambda a, b: a @ b):
        assert a(sparse, x).allclose(found[0][0])
    assert (x.T @ sparse.t()).allclose(found[0][0].T)
    assert (sparse @ x[:, 0]).allclose(found[0][0][:, 0])


def test_sums(device):
    sparse, _ = drawn(device)
    dense = sparse.to_dense()
    ones = tinytorch.ones_like(dense)
    assert (ones + sparse).allclose(ones + dense) and (sparse + ones).allclose(ones + dense)
    assert (sparse + sparse * 2).to_dense().allclose(dense * 3)
    once = sparse.coalesce()
    assert once.to_dense().allclose(dense) and once.is_coalesced()
    back = dense.to_sparse()
    assert back.indices().equal(once.indices()) and back.values().allclose(once.values())


def test_element_wise_products_with_dense_tensors(device):
    sparse, _ = drawn(device, 4, 5)
    for other in (tinytorch.rand(5), tinytorch.rand(4, 1), tinytorch.rand(4, 5), tinytorch.rand(1)):
        other = other.double().to(device)
        for result in (sparse * other, other * sparse):
            assert result.to_dense().allclose(sparse.to_dense() * other)


def test_results_written_to_out(device):
    sparse = tinytorch.rand(4, 5, dtype=tinytorch.float64).to(device).relu().to_sparse()
    x = tinytorch.rand(5, 3, dtype=tinytorch.float64).to(device)
    for function in (tinytorch.mm, tinytorch.matmul):
        out = tinytorch.zeros(4, 3, dtype=tinytorch.float64).to(device)
        assert function(sparse, x, out=out) is out
        assert out.allclose(sparse.to_dense() @ x)


def test_what_is_refused():
    sparse, _ = drawn("cpu")
    for wrong in (sparse.exp, sparse.sum, sparse.tanh):
        with pytest.raises(RuntimeError, match="sparse"):
            wrong()
    with pytest.raises(RuntimeError, match="coalesce"):
        sparse.values()
    with pytest.raises(RuntimeError, match="does not hold"):
        tinytorch.sparse_coo_tensor([[0, 4], [0, 0]], [1.0, 1.0], (4, 4))
    with pytest.raises(RuntimeError, match="sizes"):
        sparse @ tinytorch.ones(4, 4)
    with pytest.raises(RuntimeError, match="at most 2 dimensions"):
        tinytorch.sparse_coo_tensor([[0], [0], [1]], [1.0]).t()


def test_a_function_saves_a_sparse_tensor(device):
    class Neighbours(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, size, x):
            sparse = tinytorch.sparse_coo_tensor(indices, values, size)
            ctx.save_for_backward(sparse, x)
            return sparse @ x

        @staticmethod
        def backward(ctx, g):
            sparse, x = ctx.saved_tensors
            rows, columns = sparse._indices()
            return None, (g @ x.T)[rows, columns], None, sparse.t().matmul(g)

    indices = tinytorch.tensor([[0, 1, 1], [2, 0, 2]], device=device)
    values = tinytorch.tensor([3.0, 4.0, 5.0], device=device, requires_grad=True)
    x = tinytorch.tensor([[1.0], [2.0], [3.0]], device=device, requires_grad=True)
    Neighbours.apply(indices, values, (2, 3), x).sum().backward()
    assert values.grad.tolist() == [3.0, 1.0, 3.0] and x.grad.tolist() == [[4.0], [0.0], [8.0]]


def test_a_dense_tensor_saved_beside_it_is_still_checked(device):
    class Scaled(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor.to_sparse(), factor)
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1], None

    factor = tinytorch.ones(2, 2, device=device)
    y = Scaled.apply(tinytorch.ones(2, 2, device=device, requires_grad=True), factor)
    factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
