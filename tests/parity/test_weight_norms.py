"""weight_norm and spectral_norm against PyTorch's: outputs, gradients, states, errors."""

import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from tests.parity.test_programs import drawn, fill  # noqa: E402

LAYERS = {
    "linear": (lambda nn: nn.Linear(4, 3), (2, 4)),
    "conv1d": (lambda nn: nn.Conv1d(2, 3, 2), (2, 2, 5)),
    "conv2d": (lambda nn: nn.Conv2d(2, 3, 3), (2, 2, 5, 5)),
    "transposed": (lambda nn: nn.ConvTranspose2d(2, 3, 2), (1, 2, 4, 4)),
    "embedding": (lambda nn: nn.Embedding(5, 3), None),
}
WAYS = {
    "weight_norm": lambda utils, m: utils.weight_norm(m),
    "weight_norm, dim 1": lambda utils, m: utils.weight_norm(m, dim=1),
    "weight_norm, all": lambda utils, m: utils.weight_norm(m, "weight", None),
    "spectral_norm": lambda utils, m: utils.spectral_norm(m),
    "spectral_norm, options": lambda utils, m: utils.spectral_norm(m, "weight", 3, 1e-6, 1),
}


@pytest.fixture(autouse=True)
def deprecated():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def make(library, layer, way):
    module = WAYS[way](library.nn.utils, fill(library, LAYERS[layer][0](library.nn)).double())
    shape = LAYERS[layer][1]
    x = library.tensor([[0, 2], [2, 4]]) if shape is None else drawn(library, *shape).double()
    return module, x


def state_of(module, library):
    arrays = {name: value.numpy() for name, value in module.state_dict().items()}
    return {name: library.tensor(array) for name, array in arrays.items()}


def close(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), 1e-9, 1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_same_layer(layer, way):
    (ours, x), (theirs, y) = make(tinytorch, layer, way), make(torch, layer, way)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(state_of(theirs, tinytorch))  # u and v are drawn
    theirs.load_state_dict(state_of(ours, torch))
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        mine, other = ours(x) + ours(x), theirs(y) + theirs(y)
        close(mine, other)
        for module, output in ((ours, mine), (theirs, other)):
            module.zero_grad()
            (output * output).sum().backward()
        pairs = zip(ours.named_parameters(), theirs.named_parameters(), strict=True)
        for (name, p), (other_name, q) in pairs:
            assert name == other_name
            close(p.grad, q.grad)
    for name, value in ours.state_dict().items():
        close(value, theirs.state_dict()[name])
    remove = "remove_" + way.partition(",")[0]
    before = ours(x)
    for library, module in ((tinytorch, ours), (torch, theirs)):
        getattr(library.nn.utils, remove)(module)
        with pytest.raises(ValueError, match="not found in"):
            getattr(library.nn.utils, remove)(module)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    close(ours.weight, theirs.weight)
    close(ours(x), theirs(y))
    np.testing.assert_allclose(ours(x).detach().numpy(), before.detach().numpy(), 1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_both_derivatives(way):
    """Not against PyTorch's: the second derivative of its weight_norm is wrong in 2.13."""
    module, x = make(tinytorch, "conv1d", way)
    names = [name for name, _ in module.named_parameters()]
    module.eval()

    def call(*params):
        for name, param in zip(names, params, strict=True):
            module._parameters[name] = param
        return module(x).sin()

    params = tuple(module.parameters())
    assert tinytorch.autograd.gradcheck(call, params)
    assert tinytorch.autograd.gradgradcheck(call, params)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("library", [tinytorch, torch], ids=["tinytorch", "torch"])
def test_it_trains_and_refuses(library, name):
    norm = getattr(library.nn.utils, name)
    module = norm(library.nn.Linear(3, 2, bias=False))
    with pytest.raises(RuntimeError, match=f"Cannot register two {name} hooks"):
        norm(module)
    if name == "spectral_norm":
        with pytest.raises(ValueError, match="n_power_iterations"):
            norm(library.nn.Linear(3, 2), n_power_iterations=0)
    optimizer = library.optim.SGD(module.parameters(), lr=0.1)
    x, losses = library.ones(4, 3), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((module(x) - 0.5) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_weight_norm_warns():
    for library in (tinytorch, torch):
        with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
            library.nn.utils.weight_norm(library.nn.Linear(2, 2))


def test_the_largest_singular_value_is_one(device):
    module = tinytorch.nn.utils.spectral_norm(tinytorch.nn.Linear(5, 4)).to(device)
    for _ in range(60):
        module(tinytorch.ones(1, 5, device=device))
    weight = module.weight.detach().to("cpu").numpy()
    assert np.linalg.norm(weight, 2) == pytest.approx(1, abs=1e-4)
