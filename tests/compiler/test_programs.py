"""Whole programs: random ones, and the repository's examples with and without compile."""

import copy
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tests.compiler.random_programs import differences
from tinytorch import nn
from tinytorch.nn import functional as F

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


# 41 programs take every branch of the compiler that the first hundred take: 83 is the last of them
# to find a new one. For more, run `python -m tests.compiler.random_programs 0 2000 c`.
SEEDS = {"numpy": [*range(40), 83], "c": range(100, 115)}


@pytest.mark.parametrize("backend, seeds", SEEDS.items())
def test_random_programs(backend, seeds):
    results = [differences(seed, backend) for seed in seeds]
    assert [line for wrong, _ in results for line in wrong] == []
    assert sum(count for _, count in results) > len(seeds)


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(model, network, loss, batches, make_step):
    """The losses of some steps, and the state at the end."""
    tinytorch.manual_seed(1)
    optimizer = tinytorch.optim.Adam(model.parameters(), 1e-3)
    step, losses = make_step(optimizer.step), []
    for batch in batches:
        optimizer.zero_grad()
        value = loss(network, *batch)
        value.backward()
        step()
        losses.append(value.item())
    return losses


def compare(make, loss, batches, rtol=1e-4):
    tinytorch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    expected = trained(model, model, loss, batches, lambda step: step)
    network = tinytorch.compile(twin, fullgraph=True)
    found = trained(twin, network, loss, batches, tinytorch.compile)
    np.testing.assert_allclose(found, expected, rtol=rtol)
    assert network.compiled.count == 1
    for key, value in twin.state_dict().items():
        assert tinytorch.isfinite(value).all(), key


def test_the_gpt_of_the_examples():
    gpt = example("gpt")
    config = gpt.Config(50, 16, 2, 2, 32, 0.1)
    rng = np.random.default_rng(0)
    texts = [(tinytorch.tensor(rng.integers(0, 50, (4, 16))),) for _ in range(5)]

    def loss(network, text):
        logits = network(text)
        logits = logits[0] if isinstance(logits, tuple) else logits
        return F.cross_entropy(logits[:, :-1].reshape(-1, 50), text[:, 1:].reshape(-1))

    compare(lambda: gpt.GPT(config), loss, texts)


def test_the_cnn_and_the_residual_network_of_the_examples():
    cnn = example("train_cnn")
    tinytorch.manual_seed(2)
    batches = [(tinytorch.randn(8, 1, 12, 12), tinytorch.randint(10, (8,))) for _ in range(4)]
    compare(lambda: cnn.cnn(1, 12, 6), lambda net, x, t: F.cross_entropy(net(x), t), batches, 1e-3)
    batches = [(tinytorch.randn(4, 3, 16, 16), tinytorch.randint(10, (4,))) for _ in range(4)]
    compare(lambda: cnn.resnet(3, 4), lambda net, x, t: F.cross_entropy(net(x), t), batches, 1e-3)


def test_the_vae_of_the_examples():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.vae = example("vae").VAE()

        def forward(self, x):
            return self.vae.loss(x)

    batches = [(tinytorch.rand(16, 64),) for _ in range(5)]
    compare(Model, lambda network, x: network(x), batches)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "Transformer"])
def test_networks_of_sequences(kind):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(20, 16), nn.Linear(16, 20)
            if kind == "Transformer":
                layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
                self.body = nn.TransformerEncoder(layer, 2)
            else:
                self.body = getattr(nn, kind)(16, 16, batch_first=True)

        def forward(self, x):
            y = self.body(self.words(x))
            return self.out(y[0] if isinstance(y, tuple) else y)

    rng = np.random.default_rng(0)
    batches = [(tinytorch.tensor(rng.integers(0, 20, (4, 7))),) for _ in range(5)]
    compare(Model, lambda net, x: F.cross_entropy(net(x).transpose(1, 2), x), batches)
