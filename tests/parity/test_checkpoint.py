"""Checkpoints give PyTorch's gradients, of first and second order."""

import numpy as np
import pytest

import tinytorch
import tinytorch.utils.checkpoint

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytest.importorskip("torch.utils.checkpoint")

X, W = np.random.default_rng(0).normal(size=(2, 4, 4))


def block(x, w, *, power=2):
    h = (x @ w).tanh() ** power
    return h.softmax(1), {"rest": h * w}


@pytest.mark.parametrize("nested", [False, True])
def test_gradients(nested):
    found = []
    for library in (torch, tinytorch):
        checkpoint = library.utils.checkpoint.checkpoint
        x, w = (library.tensor(a, requires_grad=True) for a in (X, W))
        function = block
        if nested:
            function = lambda x, w, power, c=checkpoint: c(  # noqa: E731
                block, x, w, power=power, use_reentrant=False
            )
        y, rest = checkpoint(function, x, w, power=3, use_reentrant=False)
        total = (y**2).sum() + rest["rest"].sum()
        first = library.autograd.grad(total, (x, w), create_graph=True)
        second = library.autograd.grad(sum((g**2).sum() for g in first), (x, w))
        found.append([t.detach().numpy() for t in (y, *first, *second)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_sequential(segments):
    found = []
    for library in (torch, tinytorch):
        functions = [lambda x: x.tanh(), lambda x: x.exp(), lambda x: x * x, lambda x: x.sin()] * 2
        x = library.tensor(X, requires_grad=True)
        run = library.utils.checkpoint.checkpoint_sequential
        run(functions, segments, x, use_reentrant=False).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_errors():
    for library in (torch, tinytorch):
        module = library.utils.checkpoint
        x = library.tensor(X, requires_grad=True)
        functions = [lambda x: x.tanh().exp(), lambda x: x * 2.0]
        y = module.checkpoint(lambda x, f=functions: f.pop(0)(x), x, use_reentrant=False)
        with pytest.raises(module.CheckpointError):
            y.sum().backward()
        y = module.checkpoint(lambda x: x.tanh().exp(), x, use_reentrant=False)
        with library.no_grad():
            x.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
