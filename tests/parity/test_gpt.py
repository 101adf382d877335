"""The GPT of examples/gpt.py, once on tinytorch and once on PyTorch: the same program text, the
same weights and tokens. PyTorch reads the checkpoint."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

SOURCE = (Path(__file__).resolve().parents[2] / "examples" / "gpt.py").read_text(encoding="utf-8")
CONFIG = {
    "vocab_size": 50, "block_size": 16, "num_layers": 2, "nhead": 4, "d_model": 32, "dropout": 0.0,
}  # fmt: skip


def program(library):
    """The names of examples/gpt.py, with its library replaced."""
    source = SOURCE.replace("import tinytorch", f"import {library} as tinytorch")
    source = source.replace("from tinytorch", f"from {library}")
    names = {"__name__": "gpt_" + library, "__file__": __file__}
    sys.modules[names["__name__"]] = type(sys)(names["__name__"])  # dataclass looks there
    exec(compile(source, "gpt.py", "exec"), names)
    return names


@pytest.fixture(scope="module")
def both():
    ours, theirs = program("tinytorch"), program("torch")
    tinytorch.manual_seed(0)
    a, b = ours["GPT"](ours["Config"](**CONFIG)), theirs["GPT"](theirs["Config"](**CONFIG))
    b.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in a.state_dict().items()})
    return ours, theirs, a, b


def test_losses_of_20_steps_agree(both):
    ours, theirs, a, b = both
    optimizers = ours["make_optimizer"](a, 1e-2), theirs["make_optimizer"](b, 1e-2)
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(20):
        x, y = rng.integers(0, 50, (2, 4, 16))
        pair = []
        for names, model, optimizer, library in zip(
            both[:2], both[2:], optimizers, (tinytorch, torch), strict=True
        ):
            loss = names["loss_of"](model, library.from_numpy(x), library.from_numpy(y))
            optimizer.zero_grad()
            loss.backward()
            library.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            pair.append(loss.item())
        losses.append(pair)
    mine, expected = np.transpose(losses)
    np.testing.assert_allclose(mine, expected, rtol=2e-5)


def test_pytorch_continues_from_our_file(both, tmp_path):
    ours, theirs, a, _ = both
    path = tmp_path / "gpt.pt"
    tinytorch.save({"model": a.state_dict(), "config": CONFIG, "tokens": ["a", "b"]}, path)
    state = torch.load(path, weights_only=True)
    model = theirs["GPT"](theirs["Config"](**state["config"]))
    assert str(model.load_state_dict(state["model"])) == "<All keys matched successfully>"
    x = np.arange(16).reshape(1, 16)
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(
        a(tinytorch.from_numpy(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5
    )


def test_the_cache_changes_nothing(both):
    ours, _, a, _ = both
    x = tinytorch.arange(16).reshape(1, 16)
    caches = [ours["Cache"]() for _ in a.blocks]
    with tinytorch.no_grad():
        parts = [a(x[:, :7], caches)] + [a(x[:, i : i + 1], caches) for i in range(7, 16)]
        np.testing.assert_allclose(tinytorch.cat(parts, 1).numpy(), a(x).numpy(), atol=1e-5)
