"""Names under which programs look for things: PyTorch's paths, old names, switches, wrappers."""

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, tensor
from tinytorch.utils.data import DataLoader, DistributedSampler

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "path",
    "onnx xpu "
    "backends.cudnn backends.mps backends.cuda distributed multiprocessing nn.parallel nn.modules "
    "nn.modules.module nn.modules.loss nn.modules.utils nn.modules.batchnorm nn.modules.rnn "
    "utils.data.distributed distributions.categorical distributions.normal".split(),
)
def test_a_path_can_be_imported(path):
    module = importlib.import_module(f"tinytorch.{path}")
    found = tinytorch
    for name in path.split("."):
        found = getattr(found, name)
    assert found is module


def test_pytorchs_places_of_modules():
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import CrossEntropyLoss
    from tinytorch.nn.modules.module import Module
    from tinytorch.nn.modules.utils import _pair

    assert (Linear, CrossEntropyLoss, Module) == (nn.Linear, nn.CrossEntropyLoss, nn.Module)
    assert _pair(2) == (2, 2) and _pair([1, 2]) == (1, 2)
    assert nn.modules.Linear is nn.Linear and nn.modules.loss.MSELoss is nn.MSELoss
    with pytest.raises(ImportError):
        from tinytorch.nn.modules.loss import NoSuchLoss  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tinytorch.nn.modules.nothing")


def test_switches_and_questions():
    backends = tinytorch.backends
    for switch in ("enabled", "benchmark", "deterministic", "allow_tf32"):
        assert getattr(backends.cudnn, switch) in (True, False)  # a program may have set it
    assert not backends.cuda.matmul.allow_tf32
    tinytorch.set_float32_matmul_precision("high")
    with pytest.raises(ValueError):
        tinytorch.set_float32_matmul_precision("low")
    assert not backends.mps.is_available() and not backends.mps.is_built()
    assert not backends.cudnn.is_available()
    assert not tinytorch.xpu.is_available() and tinytorch.xpu.device_count() == 0
    assert not tinytorch.onnx.is_in_onnx_export() and not hasattr(tinytorch.onnx, "export")
    assert tinytorch.distributed.is_available() in (True, False)
    assert not tinytorch.distributed.is_initialized()
    assert tinytorch.distributed.is_nccl_available() == tinytorch.cuda.is_available()
    assert tinytorch.distributed.is_gloo_available() == tinytorch.distributed.is_available()
    assert tinytorch.distributed.is_mpi_available() == tinytorch.distributed.is_available()
    x = tensor([1.0])
    assert not any([x.is_xpu, x.is_mps, x.is_sparse, x.is_quantized, x.is_meta]) and x.is_cpu


def test_old_names_of_the_first_numbers():
    for old in "uniform normal xavier_uniform xavier_normal kaiming_uniform kaiming_normal".split():
        results = []
        for name in (old, old + "_"):
            tinytorch.manual_seed(3)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                results.append(getattr(nn.init, name)(tinytorch.empty(3, 4)).tolist())
        assert results[0] == results[1] and not caught
    with pytest.warns(FutureWarning, match="`nn.init.constant` is now deprecated in favor of"):
        assert nn.init.constant(tinytorch.empty(2), 7.0).tolist() == [7, 7]
    with pytest.warns(FutureWarning):
        nn.init.orthogonal(tinytorch.empty(3, 3))


def test_subclasses_of_arrays(tmp_path):
    data = np.memmap(tmp_path / "data", np.int64, "w+", shape=(20,))
    data[:] = np.arange(20)
    shared = tinytorch.from_numpy(data[5:9])
    data[6] = 100
    assert shared.tolist() == [5, 100, 7, 8] and type(shared.numpy()) is np.ndarray
    again = np.memmap(tmp_path / "data", np.int64, "r")
    assert tinytorch.as_tensor(again[3:5]).tolist() == [3, 4]
    batch = tinytorch.stack(
        [tinytorch.from_numpy(again[i : i + 3].astype(np.int32)) for i in (0, 2)]
    )
    assert batch.tolist() == [[0, 1, 2], [2, 3, 4]]

    class Units(np.ndarray):
        pass

    x = tinytorch.from_numpy(np.ones(3).view(Units)).requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_one_device_is_as_good_as_many():
    inner = nn.Linear(3, 2)
    model = nn.DataParallel(inner, device_ids=[0])
    x = tinytorch.ones(4, 3)
    assert model(x).tolist() == inner(x).tolist() and model.module is inner
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(ValueError, match="process group"):
        nn.parallel.DistributedDataParallel(inner)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("n", "processes"), [(10, 3), (12, 4), (2, 5), (7, 1)])
def test_shares_of_processes(n, processes, shuffle, drop_last):
    def shares(epoch=0, seed=0):
        found = []
        for rank in range(processes):
            sampler = DistributedSampler(range(n), processes, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            found.append(list(sampler))
            assert len(sampler) == len(found[-1])
        return found

    first = shares()
    lengths = {len(share) for share in first}
    seen = [i for share in first for i in share]
    assert lengths == {n // processes if drop_last else -(-n // processes)}
    assert set(seen) <= set(range(n)) and len(set(seen)) == min(n, len(seen))
    assert shares() == first and (shares(epoch=1) == shares(seed=1))
    if shuffle and n > 5:
        assert shares(epoch=1) != first


def test_a_share_in_a_loader():
    data = list(range(10))
    loaders = [
        DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, rank)) for rank in (0, 1)
    ]
    seen = [i for loader in loaders for batch in loader for i in batch.tolist()]
    assert sorted(seen) == data
    with pytest.raises(ValueError, match="process group"):
        DistributedSampler(data)
    with pytest.raises(ValueError, match="Invalid rank"):
        DistributedSampler(data, 2, 2)


def test_einops():
    einops = pytest.importorskip("einops")
    x = tinytorch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    y = einops.rearrange(x, "b (h w) c -> b c h w", w=1)
    assert y.shape == (2, 4, 3, 1) and y[1, 2, 0, 0] == x[1, 0, 2]
    pooled = einops.reduce(x, "b h (c k) -> b c", "mean", k=2)
    np.testing.assert_allclose(pooled.detach(), x.detach().numpy().reshape(2, 3, 2, 2).mean((1, 3)))
    tiled = einops.repeat(x, "b h c -> b (h k) c", k=2)
    tiled.sum().backward()
    assert tiled.shape == (2, 6, 4) and (x.grad == 2).all()
    packed, shapes = einops.pack([x[0], x[1, :2]], "* c")
    assert packed.shape == (5, 4)
    assert [tuple(part.shape) for part in einops.unpack(packed, shapes, "* c")] == [(3, 4), (2, 4)]
    assert einops.einsum(x, x, "b h c, b h c -> b").tolist() == (x * x).sum((1, 2)).tolist()
    assert isinstance(y, tinytorch.Tensor)


def test_einops_own_tests(monkeypatch):
    """Those of its operations, with tinytorch in the place of PyTorch."""
    backends = pytest.importorskip("einops._backends")
    monkeypatch.setenv("EINOPS_TEST_BACKENDS", "tinytorch")
    monkeypatch.setattr(backends, "TorchBackend", tinytorch.utils.einops.TinytorchBackend)
    importlib.import_module("einops.tests").parse_backends_to_test.cache_clear()
    tests = importlib.import_module("einops.tests.test_ops")
    assert [b.framework_name for b in tests.imp_op_backends] == ["tinytorch"]
    for name in (
        "rearrange_consistency_numpy rearrange_permutations_numpy reduction_imperatives "
        "reduction_with_callable_imperatives reduction_imperatives_booleans list_inputs "
        "concatenations_and_stacking gradients_imperatives tiling_imperatives "
        "ellipsis_ops_imperative repeat_imperatives anonymous_axes"
    ).split():
        getattr(tests, f"test_{name}")()


def test_the_deterministic_switch_leaves_winograds_tiles_out():
    x, w = (tinytorch.randn(*shape) for shape in ((8, 32, 26, 26), (64, 32, 3, 3)))
    exact = nn.functional.conv2d(x.double(), w.double())

    def error():
        return (nn.functional.conv2d(x, w).double() - exact).square().mean().sqrt().item()

    assert not tinytorch.are_deterministic_algorithms_enabled()
    tiles = error()
    try:
        tinytorch.use_deterministic_algorithms(True, warn_only=True)
        assert tinytorch.are_deterministic_algorithms_enabled()
        assert tinytorch.is_deterministic_algorithms_warn_only_enabled()
        assert error() < 0.5 * tiles
    finally:
        tinytorch.use_deterministic_algorithms(False)
    assert not tinytorch.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(TypeError, match="must be bool, not int"):
        tinytorch.use_deterministic_algorithms(1)


def test_what_most_programs_do_without_is_imported_on_demand():
    program = """
import sys
import tinytorch
late = "tinytorch.compiler tinytorch.datasets tinytorch.distributions urllib.request ssl email"
print([name for name in (late + " secrets threadpoolctl").split() if name in sys.modules])
print(tinytorch.datasets.MNIST.__name__, tinytorch.distributions.Normal.__name__)
print(tinytorch.compile.__name__, tinytorch.compiler.__name__, hasattr(tinytorch, "compiles"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines() == [
        "[]",
        "MNIST Normal",
        "compile tinytorch.compiler False",
    ]
