"""DistributedDataParallel and ZeroRedundancyOptimizer beside PyTorch's, in a group of one process.

What several processes compute is compared with one process in tests/distributed.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available():
    pytest.skip("PyTorch has no process groups", allow_module_level=True)

import tinytorch  # noqa: E402 (after PyTorch is known to be there)
import tinytorch.distributed.optim  # noqa: E402
from tinytorch.distributed.simulator import simulate  # noqa: E402


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Calls function(library) with each library in a group of one process; gives both results."""
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    def both(function):
        def ours():
            tinytorch.distributed.init_process_group("mpi")
            return function(tinytorch)

        return simulate(1, ours)[0], function(torch)

    yield both
    torch.distributed.destroy_process_group()


def network(lib, used=2):
    """Three layers, of which the last ones may not be used."""

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = lib.nn.ModuleList([lib.nn.Linear(3, 3) for _ in range(3)])

        def forward(self, x):
            for layer in self.layers[:used]:
                x = layer(x)
            return x

    net = Net()
    numbers = np.random.default_rng(0)
    with lib.no_grad():
        for param in net.parameters():
            param.copy_(lib.tensor(numbers.normal(size=tuple(param.shape))))
    return net


def message(function, *args):
    with pytest.raises((RuntimeError, ValueError)) as caught:
        function(*args)
    return type(caught.value), str(caught.value)


def gradients(model):
    return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]


@pytest.mark.parametrize("view", [False, True])
def test_unused_parameters_and_accumulation(world, view):
    def run(lib):
        ddp = lib.nn.parallel.DistributedDataParallel(
            network(lib), find_unused_parameters=True, gradient_as_bucket_view=view
        )
        x, found = lib.ones(2, 3), [list(ddp.state_dict())]
        ddp(x).sum().backward()
        found.append(gradients(ddp))
        with ddp.no_sync():
            ddp(x).sum().backward()
        ddp(x).sum().backward()
        found.append(gradients(ddp))
        ddp.zero_grad(set_to_none=False)
        found.append(gradients(ddp))
        ddp.eval()
        with lib.no_grad():
            found.append(ddp(x).tolist())
        return found

    ours, theirs = world(run)
    for mine, expected in zip(ours, theirs, strict=True):
        assert str(tree(mine)) == str(tree(expected))


def tree(value):
    """The value with numbers to five digits."""
    if isinstance(value, list):
        return [tree(part) for part in value]
    return float(f"{value:.4g}") + 0.0 if isinstance(value, float) else value


def test_errors(world):
    def run(lib):
        wrap = lib.nn.parallel.DistributedDataParallel
        ddp = wrap(network(lib), bucket_cap_mb=1e-5)
        ddp(lib.ones(2, 3)).sum().backward()
        return [
            message(wrap, lib.nn.ReLU()),
            message(ddp, lib.ones(2, 3)),
            message(lib.nn.SyncBatchNorm(3), lib.ones(3)),
        ]

    ours, theirs = world(run)
    for (kind, text), (expected, their_text) in zip(ours, theirs, strict=True):
        assert kind is expected and text.split(".")[0] == their_text.split(".")[0]
    assert "rank 0: 4 5" in ours[1][1] and "rank 0: 4 5" in theirs[1][1].replace("\n", " ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own module uses torch.jit
def test_zero_redundancy_optimizer(world):
    def run(lib):
        zero = __import__(f"{lib.__name__}.distributed.optim", fromlist=["optim"])
        model = network(lib, used=3)
        first, *others = model.parameters()
        groups = [{"params": [first], "lr": 0.1}, {"params": others, "weight_decay": 0.2}]
        optimizer = zero.ZeroRedundancyOptimizer(groups, lib.optim.Adam, lr=0.01)
        refused = message(optimizer.state_dict)
        for _ in range(3):
            optimizer.zero_grad()
            model(lib.ones(2, 3)).square().sum().backward()
            optimizer.step()
        optimizer.consolidate_state_dict()
        state = optimizer.state_dict()
        values = {n: {k: v.tolist() for k, v in s.items()} for n, s in state["state"].items()}
        options = [(g["lr"], g["weight_decay"], g["params"]) for g in state["param_groups"]]
        weights = [p.tolist() for p in model.parameters()]
        return refused, list(values), [list(v) for v in values.values()], options, tree(weights)

    ours, theirs = world(run)
    assert ours == theirs
