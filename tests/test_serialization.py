"""save and load: round trips, shared memory, devices, and files that are not as they should be."""

import io
import json
import math
import os
import pickle
import subprocess
import sys
import time
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.core.dtype import DType


def round_trip(value, **options):
    file = io.BytesIO()
    tinytorch.save(value, file)
    file.seek(0)
    return tinytorch.load(file, **options)


def same(a, b):
    """Whether two values are the same, type for type and bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tinytorch.Tensor):
        facts = [(x.shape, x.dtype, x.device, x.requires_grad, x.stride()) for x in (a, b)]
        bits = [x.numpy(force=True).tobytes() for x in (a, b)]
        return facts[0] == facts[1] and bits[0] == bits[1]
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a is b if a is None or isinstance(a, DType) else repr(a) == repr(b)


PLAIN = [
    None,
    True,
    0,
    -(2**200),
    1.5,
    -0.0,
    math.inf,
    math.nan,
    5e-324,
    "",
    "l\u00f6s\n\ud800 \U0001f600",
    [],
    (),
    {},
    [1, [2.0, (None,)], "x"],
    ["list", [1, 2]],
    {"a": 1, 2: "b", (1, "c"): [False], None: 0, 1.5: {}},
    OrderedDict(b=1, a=2),
    Counter({3: 2, 7: 1}),
    tinytorch.Size([2, 3]),
    tinytorch.bfloat16,
    tinytorch.device("cuda:1"),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back(value):
    assert same(value, round_trip(value))


@pytest.mark.parametrize("dtype", DType.by_name.values(), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4)], ids=str)
def test_tensors_come_back(device, dtype, shape):
    x = tinytorch.tensor(np.arange(math.prod(shape)).reshape(shape), dtype=dtype, device=device)
    y = round_trip(x)
    assert same(x, y)
    assert y.add_(1 if dtype is not tinytorch.bool else True).shape == x.shape  # may be written


def test_flags_and_parameters_come_back(device):
    x = tinytorch.randn(2, requires_grad=True, device=device)
    layer = nn.Linear(2, 2).to(device)
    loaded = round_trip([x, (x * 2), layer.weight, nn.Parameter(x.detach(), requires_grad=False)])
    assert [y.requires_grad for y in loaded] == [True, True, True, False]
    assert [type(y) for y in loaded] == [tinytorch.Tensor] * 2 + [nn.Parameter] * 2
    assert all(y.is_leaf and y.device == x.device for y in loaded)
    (loaded[2] * loaded[2]).sum().backward()
    assert tinytorch.equal(loaded[2].grad, 2 * layer.weight.detach())


def test_shared_memory_is_shared_again(device):
    base = tinytorch.arange(24.0, device=device).reshape(4, 6)
    saved = {"whole": base, "again": base, "row": base[1], "turned": base.T, "other": base.clone()}
    saved["wide"] = base[2].expand(3, 6)
    loaded = round_trip(saved)
    assert same(saved, loaded) and loaded["whole"] is loaded["again"]
    loaded["row"].zero_()
    assert loaded["whole"][1].sum().item() == 0 and loaded["turned"][:, 1].sum().item() == 0
    assert loaded["other"][1].sum().item() != 0
    loaded["whole"][2, 0] = 99
    assert loaded["wide"][:, 0].tolist() == [99] * 3


def test_types_that_share_memory():
    memory = np.zeros(40, np.uint8)
    saved = [
        tinytorch.from_numpy(memory[1:4]),
        tinytorch.from_numpy(memory[8:24].view(np.float32)),
        tinytorch.from_numpy(memory[33:]),
    ]
    loaded = round_trip(saved)
    assert same(saved, loaded)
    loaded[1].fill_(1.0)
    assert loaded[1].storage().tolist()[:2] == [0.0, 0.0] or len(loaded[1].storage()) >= 4


def test_a_part_of_a_large_tensor_makes_a_small_file():
    large = tinytorch.zeros(1000, 1000)
    file = io.BytesIO()
    tinytorch.save([large[500, 7:17], large[501, :5]], file)
    assert file.tell() < 8000


def test_odd_numpy_arrays_are_saved():
    records = np.zeros(3, dtype=[("a", np.uint8), ("b", np.float32)])
    records["b"] = [1, 2, 3]
    for array in (records["b"], np.arange(6.0)[::2], np.asfortranarray(np.eye(3)[:, :2])):
        assert round_trip(tinytorch.from_numpy(array)).tolist() == array.tolist()


def test_state_dicts_come_back(tmp_path, device):
    def model():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)

    one, two = model(), model()
    tinytorch.save(one.state_dict(), tmp_path / "model.tt")
    assert type(one.state_dict()) is type(tinytorch.load(tmp_path / "model.tt"))
    two.load_state_dict(tinytorch.load(str(tmp_path / "model.tt"), weights_only=True))
    x = tinytorch.randn(3, 4, device=device)
    assert tinytorch.equal(one(x), two(x))


def test_tied_weights_stay_tied():
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    state = round_trip(nn.Sequential(a, b).state_dict())
    state["0.weight"].zero_()
    assert state["1.weight"].abs().sum().item() == 0


def test_map_location(strict_device):
    x = tinytorch.ones(2, device=strict_device)
    assert round_trip(x).device.type == "strict"
    assert round_trip(x, map_location="cpu").device.type == "cpu"
    assert round_trip(x, map_location=tinytorch.device("cpu")).tolist() == [1, 1]
    loaded = round_trip([x, tinytorch.ones(1)], map_location={"strict": "cpu", "other": "strict"})
    assert [y.device.type for y in loaded] == ["cpu", "cpu"]
    assert round_trip(tinytorch.ones(1), map_location="strict").device.type == "strict"
    with pytest.raises(RuntimeError, match="Expected one of"):
        round_trip(x, map_location="elsewhere")


def test_map_location_may_be_a_function(strict_device):
    saved = [tinytorch.ones(2, device=strict_device), tinytorch.arange(3)]
    seen = []

    def look(storage, location):
        seen.append((storage.nbytes(), str(storage.device), location))

    assert [y.device.type for y in round_trip(saved, map_location=look)] == ["strict", "cpu"]
    assert seen == [(8, "cpu", "strict"), (24, "cpu", "cpu")]
    stay = round_trip(saved, map_location=lambda storage, location: storage)
    assert [y.device.type for y in stay] == ["cpu", "cpu"] and stay[0].tolist() == [1, 1]
    move = round_trip(saved, map_location=lambda storage, location: storage.to("strict"))
    assert [y.device.type for y in move] == ["strict", "strict"] and move[1].tolist() == [0, 1, 2]
    some = {"strict": None, "cpu": tinytorch.device("cpu")}
    mixed = round_trip(saved, map_location=lambda storage, at: some[at] and storage)
    assert [y.device.type for y in mixed] == ["strict", "cpu"]


@pytest.mark.skipif(tinytorch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there():
    file = io.BytesIO()
    tinytorch.save(tinytorch.ones(2), file)
    moved = rewritten(file, lambda content: content["storages"][0].update(device="cuda:0"))
    with pytest.raises(RuntimeError, match="map_location='cpu'"):
        tinytorch.load(moved)
    assert tinytorch.load(moved, map_location="cpu").tolist() == [1, 1]


class Unknown:
    pass


@pytest.mark.parametrize(
    "value",
    [Unknown(), nn.Linear(1, 1), {1, 2}, print, np.float64(1.0), np.ones(2), 1j, b"bytes"],
    ids=lambda value: type(value).__name__,
)
def test_what_a_file_cannot_hold_is_named_and_nothing_is_written(tmp_path, value):
    with pytest.raises(TypeError, match=rf"{type(value).__name__} \(the value\['a'\]\[1\]\)"):
        tinytorch.save({"a": [1, value]}, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_the_same_value_makes_the_same_bytes():
    files = io.BytesIO(), io.BytesIO()
    for file in files:
        tinytorch.save({"x": tinytorch.arange(5), "lr": 0.1}, file)
    assert files[0].getvalue() == files[1].getvalue()


# Files that are not as they should be.


def rewritten(file, change):
    """The file with another tinytorch.json."""
    result = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "tinytorch.json":
                content = json.loads(data)
                change(content)
                data = json.dumps(content)
            new.writestr(name, data)
    result.seek(0)
    return result


def saved_bytes():
    file = io.BytesIO()
    tinytorch.save({"x": tinytorch.arange(100), "y": [1, 2]}, file)
    return file.getvalue()


def test_a_file_that_ends_too_early(tmp_path):
    whole = saved_bytes()
    for length in [0, 1, 4, 30, *range(50, len(whole), 97), len(whole) - 1]:
        (tmp_path / "file").write_bytes(whole[:length])
        with pytest.raises(RuntimeError, match=r"file is damaged, incomplete or not from save\(\)"):
            tinytorch.load(tmp_path / "file")


def test_a_flipped_bit_is_noticed():
    whole = saved_bytes()
    place = whole.index(np.arange(100).tobytes()) + 123
    broken = whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :]
    with pytest.raises(RuntimeError, match="Bad CRC-32"):
        tinytorch.load(io.BytesIO(broken))


def test_a_foreign_file(tmp_path):
    other_zip = io.BytesIO()
    with zipfile.ZipFile(other_zip, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    foreign = [b"hello", pickle.dumps({"x": 1}), other_zip.getvalue(), os.urandom(1000)]
    for content in foreign:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(RuntimeError, match=r"file is .*save\(\)"):
            tinytorch.load(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        tinytorch.load(tmp_path / "missing")
    (tmp_path / "file").write_bytes(other_zip.getvalue())
    with pytest.raises(
        RuntimeError, match=r"is PyTorch's: torch.save\(\) wrote a pickle.*safetensors"
    ):
        tinytorch.load(tmp_path / "file")


def test_what_pytorch_can_be_told_of_its_pickles(tmp_path):
    tinytorch.save([1], tmp_path / "file", pickle, pickle_protocol=4)
    assert tinytorch.load(tmp_path / "file", "cpu", pickle, weights_only=False, mmap=True) == [1]


LIES = {
    "outside": lambda c: c["tensors"][0].update(shape=[101]),
    "far outside": lambda c: c["tensors"][0].update(shape=[2**62], strides=[8]),
    "too many bytes": lambda c: c["tensors"][0].update(shape=[2**70], strides=[2**70]),
    "before": lambda c: c["tensors"][0].update(start=-8),
    "backwards": lambda c: c["tensors"][0].update(strides=[-8]),
    "negative": lambda c: c["tensors"][0].update(shape=[-1]),
    "two shapes": lambda c: c["tensors"][0].update(shape=[10, 10]),
    "two shapes, empty": lambda c: c["tensors"][0].update(shape=[0, 10]),
    "no number": lambda c: c["tensors"][0].update(shape=["1"]),
    "no whole number": lambda c: c["tensors"][0].update(shape=[1.5]),
    "type": lambda c: c["tensors"][0].update(dtype="object"),
    "storage": lambda c: c["tensors"][0].update(storage=1),
    "kind": lambda c: c.update(value=["os.system", "ls"]),
    "no kind": lambda c: c.update(value=[]),
    "unhashable": lambda c: c.update(value=["dict", [[["list", []], 1]]]),
    "tensor": lambda c: c.update(value=["Tensor", 7]),
    "no format": lambda c: c.pop("format"),
    "another format": lambda c: c.update(format="version 99, little endian"),
    "no list": lambda c: c.update(tensors=3),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies(lie):
    with pytest.raises(RuntimeError, match="the file is"):
        tinytorch.load(rewritten(io.BytesIO(saved_bytes()), LIES[lie]))


def test_a_compressed_file_that_is_damaged():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tinytorch.json", json.dumps({"format": "x" * 1000}))
    content = bytearray(packed.getvalue())
    content[44:48] = b"\xff" * 4
    with pytest.raises(RuntimeError, match="the file is damaged"):
        tinytorch.load(io.BytesIO(bytes(content)))


def test_weights_only_changes_nothing():
    for choice in (True, False):
        assert round_trip({"lr": 0.1}, weights_only=choice) == {"lr": 0.1}


# A save that does not come to its end.


class Interrupt(BaseException):
    pass


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    tinytorch.save("old", path)

    def interrupt(*args):
        raise Interrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(Interrupt):
        tinytorch.save("new", path)
    monkeypatch.undo()
    assert tinytorch.load(path) == "old" and list(tmp_path.iterdir()) == [path]
    tinytorch.save("new", path)
    assert tinytorch.load(path) == "new" and list(tmp_path.iterdir()) == [path]


KILLED = """
import sys, tinytorch
value = tinytorch.ones(1 << 20)
number = 0
while True:
    tinytorch.save({"number": number, "value": value.fill_(number)}, sys.argv[1])
    if number == 1:
        print("started", flush=True)
    number += 1
"""


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    command = [sys.executable, "-c", KILLED, str(path)]
    for pause in (0.0, 0.013):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(pause)
            process.kill()
        loaded = tinytorch.load(path)
        assert (loaded["value"] == loaded["number"]).all().item()


def test_save_writes_through_a_link_and_keeps_the_usual_rights(tmp_path):
    tinytorch.save(1, tmp_path / "real")
    (tmp_path / "other").touch()
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "other").stat().st_mode
    (tmp_path / "link").symlink_to("real")
    tinytorch.save(2, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and tinytorch.load(tmp_path / "real") == 2
