"""Files between PyTorch and tinytorch: what one saves, the other loads."""

import io
import zipfile
from collections import Counter, OrderedDict

import pytest

torch = pytest.importorskip("torch")

import tinytorch  # noqa: E402

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
DIRECTIONS = pytest.mark.parametrize(
    "source, target", [(torch, tinytorch), (tinytorch, torch)], ids=["from torch", "to torch"]
)


def sent(source, target, value, **options):
    """The value, saved by one library and loaded by the other."""
    source.save(value, file := io.BytesIO())
    file.seek(0)
    return target.load(file, weights_only=True, **options)


def facts(x):
    parts = x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x.requires_grad
    return str(parts).replace("tinytorch", "torch"), x.tolist()


@DIRECTIONS
@pytest.mark.parametrize("name", DTYPES)
def test_types_and_shapes(source, target, name):
    numbers = source.arange(24).reshape(2, 3, 4).to(getattr(source, name))
    views = [numbers, numbers[1], numbers.permute(2, 0, 1), numbers[:, 1:, ::2], numbers[0, 0, 0]]
    views += [numbers[:1, :1].expand(5, 3, 4), source.empty(0, dtype=numbers.dtype)]
    loaded = sent(source, target, views)
    assert [facts(x) for x in loaded] == [facts(x) for x in views]
    assert len({x.untyped_storage().data_ptr() for x in loaded[:6]}) == 1
    assert loaded[0].untyped_storage().nbytes() == numbers.untyped_storage().nbytes()


@DIRECTIONS
@pytest.mark.parametrize("shape", [(0,), (2, 0, 4), (0, 3)], ids=str)
def test_tensors_without_elements(source, target, shape):
    assert tuple(sent(source, target, source.empty(*shape)).shape) == shape
    assert tuple(sent(source, target, source.ones(2, 3, 4)[:, 3:]).shape) == (2, 0, 4)


@DIRECTIONS
def test_plain_values(source, target):
    value = {
        "numbers": [0, 1, -1, 255, 256, 2**31, -(2**31), 2**100, 1.5, float("inf"), True, None],
        "text": ["", "l\u00f6s \ud800", b"", bytes(range(256))],
        "nested": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, [4, {}]), {(1, "a"): [()]}, [[]]),
        1: {1, 2, "x"},
        "kinds": [OrderedDict(a=1), Counter("aab")],
        "many": [*range(3000)],
        "dict": {str(n): [n] for n in range(2500)},
    }
    loaded = sent(source, target, value)
    assert loaded == value and [type(x) for x in loaded["kinds"]] == [OrderedDict, Counter]


@DIRECTIONS
def test_objects(source, target):
    shared = [1]
    leaf = source.nn.Parameter(source.ones(2))
    frozen = source.nn.Parameter(source.ones(2), requires_grad=False)
    value = [source.float16, source.Size([2, 3]), source.device("cpu"), leaf, frozen, leaf * 2]
    loaded = sent(source, target, [*value, shared, shared, leaf])
    assert loaded[0] is target.float16
    assert type(loaded[1]) is target.Size and loaded[1] == (2, 3)
    assert loaded[2] == target.device("cpu")
    assert [type(x) for x in loaded[3:6]] == [target.nn.Parameter] * 2 + [target.Tensor]
    assert [x.requires_grad for x in loaded[3:6]] == [True, False, True]
    assert loaded[6] is loaded[7] and loaded[3] is loaded[8]


def network(library):
    nn = library.nn
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
    net[2].bias.requires_grad_(False)
    return net


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01},
    "Adagrad": {"lr": 0.01},
}


@DIRECTIONS
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_on_in_the_other_library(source, target, name):
    """Three steps here, two there, are five steps here."""
    x = [[((i * j) % 7) / 7 for j in range(4)] for i in range(16)]
    y = [i % 3 for i in range(16)]

    def parts(library):
        net = network(library)
        optimizer = getattr(library.optim, name)(net.parameters(), **OPTIMIZERS[name])
        return net, optimizer, library.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])

    def train(library, run, steps):
        net, optimizer, schedule = run
        for _ in range(steps):
            optimizer.zero_grad()
            loss = library.nn.functional.cross_entropy(net(library.tensor(x)), library.tensor(y))
            loss.backward()
            optimizer.step()
            schedule.step()

    one, two = parts(source), parts(target)
    train(source, one, 3)
    for part, state in zip(two, sent(source, target, [p.state_dict() for p in one]), strict=True):
        part.load_state_dict(state)
    train(source, one, 2)
    train(target, two, 2)
    for p, q in zip(one[0].parameters(), two[0].parameters(), strict=True):
        assert q.detach().numpy() == pytest.approx(p.detach().numpy(), rel=1e-4, abs=1e-6)


def test_the_metadata_of_a_state_dict_stays():
    state = torch.nn.BatchNorm1d(2).state_dict()
    here = sent(torch, tinytorch, state)
    assert here._metadata == state._metadata
    assert sent(tinytorch, torch, here)._metadata == state._metadata


@DIRECTIONS
def test_map_location(source, target):
    x = source.arange(3.0)
    for choice in ("cpu", target.device("cpu"), {"cpu": "cpu"}, lambda storage, location: storage):
        assert sent(source, target, [x, x[1:]], map_location=choice)[1].tolist() == [1, 2]


def test_members_are_those_of_pytorch(tmp_path):
    members = []
    for library in (torch, tinytorch):
        library.save([library.ones(3), library.zeros(2)], file := io.BytesIO())
        with zipfile.ZipFile(file) as archive:
            names = [n for n in archive.namelist() if not n.endswith("serialization_id")]
            kept = [(n, archive.read(n)) for n in names if not n.endswith("data.pkl")]
            members.append((names, kept, {info.compress_type for info in archive.infolist()}))
    assert members[0] == members[1]
    tinytorch.save(tinytorch.arange(100), tmp_path / "file")
    assert torch.load(tmp_path / "file", mmap=True).tolist() == [*range(100)]


def test_what_is_not_here_is_refused_by_name(tmp_path):
    for value, name in (
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (torch.ones(2, dtype=torch.complex64), "torch.ComplexFloatStorage"),
        (torch.ones(2, dtype=torch.uint16), "torch.storage.UntypedStorage|rebuild_tensor_v3"),
        (torch.ones(2).to_sparse(), "_rebuild_sparse_tensor"),
        (1j, "complex"),
    ):
        torch.save(value, tmp_path / "file")
        with pytest.raises(Exception, match=f"cannot load .*file: the pickle needs .*({name})"):
            tinytorch.load(tmp_path / "file")
    torch.save([1], tmp_path / "file", _use_new_zipfile_serialization=False)
    with pytest.raises(Exception, match=r"bare pickle.*torch.save\(torch.load\(path\), path\)"):
        tinytorch.load(tmp_path / "file")
