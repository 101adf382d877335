"""safetensors files between PyTorch and tinytorch: a model trained in one runs in the other."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("safetensors.torch")

import tinytorch  # noqa: E402
from tinytorch.serialization import safetensors as ours  # noqa: E402

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_every_type_in_both_directions(tmp_path, name, shape):
    numbers = np.arange(int(np.prod(shape))).reshape(shape) - (name != "bool" and name != "uint8")
    x = tinytorch.tensor(numbers, dtype=getattr(tinytorch, name))
    ours.save_file({"x": x}, tmp_path / "ours", {"from": "here"})
    y = theirs.load_file(tmp_path / "ours")["x"]
    assert y.dtype == getattr(torch, name) and tuple(y.shape) == shape
    assert y.tolist() == x.tolist()
    theirs.save_file({"x": y}, tmp_path / "theirs", {"from": "here"})
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()
    z = ours.load_file(tmp_path / "theirs")["x"]
    assert z.dtype is x.dtype and z.shape == x.shape and z.tolist() == x.tolist()


def model(library):
    nn = library.nn
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    net[2].bias.requires_grad_(False)
    return net


def train(library, net, x, y):
    optimizer = library.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        library.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


def test_a_trained_model_in_both_directions(tmp_path):
    x, y = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32), np.arange(16) % 3
    pairs = {library: (library.from_numpy(x), library.from_numpy(y)) for library in (tinytorch, torch)}  # fmt: skip # noqa: E501
    for source, target, save, load in (
        (torch, tinytorch, theirs.save_file, ours.load_file),
        (tinytorch, torch, ours.save_file, theirs.load_file),
    ):
        trained, empty = model(source), model(target)
        train(source, trained, *pairs[source])
        save(trained.state_dict(), tmp_path / "file")
        assert not any(empty.load_state_dict(load(tmp_path / "file")))
        expected = trained(pairs[source][0]).detach().numpy()
        found = empty(pairs[target][0]).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_refusals_are_the_same(tmp_path):
    for library, module in ((torch, theirs), (tinytorch, ours)):
        x = library.ones(2, 3)
        for wrong in ({"a": x, "b": x[0]}, {"a": x.T}, {"a": 1}, [x]):
            with pytest.raises((RuntimeError, ValueError)) as caught:
                module.save_file(wrong, tmp_path / "file")
            expected = RuntimeError if isinstance(wrong, dict) and len(wrong) == 2 else ValueError
            assert caught.type is expected
