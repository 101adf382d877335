"""autograd.functional against PyTorch's: values, the nesting of the results, requires_grad."""

import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

rng = np.random.default_rng(0)
A, B = rng.random((2, 3)), rng.random(3)
FUNCTIONS = {
    "one input": (lambda x: (x**3).sum(1), A),
    "two inputs": (lambda x, y: (x * y).exp().sum(), (A, B)),
    "two outputs": (lambda x, y: (x * y, x.sum()), (A, B)),
    "unused input": (lambda x, y: (x * x).sum(), (A, B)),
    "no graph": (lambda x: x.detach() * 2, A),
    "linear": (lambda x, y: (x * 2 + y).sum(1), (A, B)),
    "a number": (lambda x: x.pow(3).sum(), A),
}


def halves(x):
    return type(x)(halves(y) for y in x) if isinstance(x, tuple) else x.detach() * 0 + 0.5


def run(library, name, function, inputs, requires_grad, create_graph):
    def tensor(array):
        return library.tensor(array, dtype=library.float64, requires_grad=requires_grad)

    x = tuple(map(tensor, inputs)) if isinstance(inputs, tuple) else tensor(inputs)
    call = getattr(library.autograd.functional, name)
    if name in ("jacobian", "hessian"):
        return call(function, x, create_graph=create_graph)
    like = function(*(x if isinstance(x, tuple) else (x,))) if name == "vjp" else x
    return call(function, x, halves(like), create_graph=create_graph)


def assert_same(ours, theirs):
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            assert_same(*pair)
        return
    assert (tuple(ours.shape), ours.requires_grad) == (tuple(theirs.shape), theirs.requires_grad)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_same_as_pytorch(case, name, requires_grad, create_graph):
    arguments = (name, *FUNCTIONS[case], requires_grad, create_graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = run(torch, *arguments)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                run(tinytorch, *arguments)
            return
    assert_same(run(tinytorch, *arguments), expected)
