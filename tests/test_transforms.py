"""torch.func: grad, vjp, jvp, jacrev, hessian and vmap."""

import pytest

import tinytorch
from tinytorch import func, nn
from tinytorch.utils._pytree import tree_flatten, tree_map, tree_unflatten


def test_gradients_of_gradients(device):
    x = tinytorch.tensor(0.7, dtype=tinytorch.float64, device=device)
    f = lambda x: x.sin() * x**2  # noqa: E731
    second = 2 * x.sin() + 4 * x * x.cos() - x**2 * x.sin()
    assert func.grad(func.grad(f))(x).isclose(second)
    assert not func.grad(f)(x).requires_grad and x.grad is None


def test_a_result_stays_connected_with_what_is_differentiated_outside(device):
    w = tinytorch.tensor(2.0, device=device, requires_grad=True)
    x = tinytorch.tensor(0.3, device=device)
    found = func.grad(lambda x: (x * w).sin())(x)
    found.backward()
    with tinytorch.no_grad():
        assert w.grad.isclose((x * w).cos() - w * x * (x * w).sin())
    x.requires_grad_()
    (again,) = tinytorch.autograd.grad(func.grad(lambda x: x**3)(x), x)
    assert again.isclose(6 * x.detach())


def test_jacobians_and_products(device):
    w, x = tinytorch.rand(3, 4, device=device), tinytorch.rand(4, device=device)
    f = lambda w, x: (w @ x).tanh()  # noqa: E731
    jacobians = func.jacrev(f, argnums=(0, 1))(w, x)
    expected = tinytorch.autograd.functional.jacobian(f, (w, x))
    assert all(a.allclose(b) for a, b in zip(jacobians, expected, strict=True))
    v = tinytorch.rand(3, device=device)
    output, back = func.vjp(f, w, x)
    assert back(v)[1].allclose(v @ expected[1]) and output.equal(f(w, x))
    u = tinytorch.rand(4, device=device)
    ahead = func.jvp(f, (w, x), (tinytorch.zeros_like(w), u))[1]
    assert ahead.allclose(expected[1] @ u, atol=1e-6)


def test_gradients_of_each_item(device):
    with tinytorch.device(device):
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        inputs, targets = tinytorch.rand(5, 3), tinytorch.tensor([0, 1, 1, 0, 1])
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x, t):
        output = func.functional_call(model, params, (x[None],))
        return nn.functional.cross_entropy(output, t[None])

    found = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, inputs, targets)
    nn.functional.cross_entropy(model(inputs), targets).backward()
    for name, p in model.named_parameters():
        assert found[name].shape == (5, *p.shape)
        assert found[name].mean(0).allclose(p.grad, atol=1e-6)


def test_an_ensemble():
    models = [nn.BatchNorm1d(3).eval() for _ in range(4)]
    with tinytorch.no_grad():
        for number, model in enumerate(models):
            model.weight.fill_(number)
    params, buffers = func.stack_module_state(models)
    assert params["weight"].requires_grad and buffers["num_batches_tracked"].shape == (4,)
    x = tinytorch.rand(2, 3)
    call = lambda p, b, x: func.functional_call(models[0], (p, b), (x,))  # noqa: E731
    votes = func.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    assert all(vote.equal(model(x)) for vote, model in zip(votes, models, strict=True))
    with pytest.raises(RuntimeError):
        func.stack_module_state([nn.Linear(1, 1), nn.ReLU()])


def test_where_the_batch_is():
    a = tinytorch.rand(2, 3, 4)
    total = func.vmap(lambda x: x.sum(0), in_dims=1, out_dims=1)(a)
    assert total.equal(a.sum(0).T.contiguous()) or total.allclose(a.sum(0).T)
    assert tinytorch.vmap(tinytorch.vmap(tinytorch.dot))(a, a).allclose((a * a).sum(-1))
    with pytest.raises(ValueError, match="one size"):
        func.vmap(tinytorch.dot)(a[0], a[:, 0])


def test_trees():
    tree = {"a": [1, (2, None)], "b": {}}
    leaves, form = tree_flatten(tree)
    assert leaves == [1, 2, None] and tree_unflatten(leaves, form) == tree
    assert tree_map(lambda x: [x], [1, {"k": 2}]) == [[1], {"k": [2]}]
