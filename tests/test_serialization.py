"""save and load: round trips, shared memory, devices, and files that are not as they should be."""

import io
import math
import os
import pickle
import random
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

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
    if isinstance(a, set):
        return a == b
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
    b"",
    bytes(range(256)),
    set(),
    [{1, "a", (2, None)}],
    [*range(300)],
    [-1, 255, 256, -32769, 2**31, -(2**31), 2**63],
    tinytorch.bfloat16,
    tinytorch.device("cuda:1"),
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
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
    numbers = tinytorch.from_numpy(memory[8:24].view(np.float32))
    unaligned = tinytorch.from_numpy(memory[1:9].view(np.float32))
    assert same(numbers, round_trip(numbers)) and round_trip(numbers).storage_offset() == 2
    assert same(unaligned, round_trip(unaligned))
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        round_trip([numbers, tinytorch.from_numpy(memory)])


def test_offsets_and_whole_storages_are_kept():
    base = tinytorch.arange(24.0).reshape(4, 6)
    loaded = round_trip(base[1:, 2:])
    assert loaded.storage_offset() == 8 and loaded.stride() == (6, 1)
    assert loaded.untyped_storage().nbytes() == 96
    assert round_trip(base[1:, 2:].clone()).untyped_storage().nbytes() == 48


def test_shared_containers_are_shared_again():
    row = [1]
    loaded = round_trip({"a": row, "b": (row, row)})
    assert loaded["a"] is loaded["b"][0] is loaded["b"][1]
    row.append(row)
    again = round_trip(row)
    assert again[1] is again


def test_attributes_of_an_ordered_dict():
    state = OrderedDict(a=1)
    state._metadata = OrderedDict(version=2)
    loaded = round_trip(state)
    assert loaded == state and loaded._metadata == {"version": 2}


def test_states_of_optimizers_and_schedulers_come_back():
    net = nn.Linear(3, 2)
    optimizer = tinytorch.optim.Adam(net.parameters(), lr=0.01)
    schedule = tinytorch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2])
    for _ in range(2):
        optimizer.zero_grad()
        net(tinytorch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    for part in (optimizer, schedule):
        saved = part.state_dict()
        loaded = round_trip(saved)
        assert str(loaded) == str(saved)
        part.load_state_dict(loaded)


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
    moved = rewritten(file.getvalue(), (b"\x03\0\0\0cpu", b"\x06\0\0\0cuda:0"))
    with pytest.raises(RuntimeError, match="map_location='cpu'"):
        tinytorch.load(moved)
    assert tinytorch.load(moved, map_location="cpu").tolist() == [1, 1]


class Unknown:
    pass


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), lambda: 0, (n for n in [1]), [{"inside": sys}]],
    ids=lambda value: type(value).__name__,
)
def test_what_a_file_cannot_hold_is_refused_and_nothing_is_written(tmp_path, value):
    with pytest.raises(TypeError, match="cannot (save|pickle)"):
        tinytorch.save({"a": [1, value]}, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [Unknown(), frozenset([1]), print, Unknown, np.float64(1.5), np.arange(3.0), 1j, ..., range(3)],
    ids=lambda value: type(value).__name__,
)
def test_objects_are_loaded_only_where_asked_for(value):
    file = io.BytesIO()
    tinytorch.save({"a": [value, value], "x": tinytorch.ones(2)}, file)
    with pytest.raises(pickle.UnpicklingError, match="the pickle needs"):
        tinytorch.load(file)
    found = tinytorch.load(file, weights_only=False)
    first, second = found["a"]
    assert first is second and type(first) is type(value) and found["x"].tolist() == [1, 1]
    if type(value) is not Unknown:
        np.testing.assert_array_equal(first, value)


class Tree(dict):
    class Leaf:
        pass


def test_objects_that_contain_themselves_and_classes_inside_classes():
    tree, leaf = Tree(a=1), Tree.Leaf()
    tree["tree"], leaf.tree, leaf.kind = tree, tree, Tree.Leaf
    file = io.BytesIO()
    tinytorch.save([tree, leaf], file)
    tree, leaf = tinytorch.load(file, weights_only=False)
    assert tree["a"] == 1 and tree["tree"] is tree and type(tree) is Tree
    assert leaf.tree is tree and leaf.kind is Tree.Leaf and type(leaf) is Tree.Leaf


def test_a_network_that_knows_itself():
    net = nn.Linear(2, 2)
    net.parents = [net]
    file = io.BytesIO()
    tinytorch.save(net, file)
    again = tinytorch.load(file, weights_only=False)
    assert again.parents[0] is again and again.weight.tolist() == net.weight.tolist()


def test_values_of_numpy_need_only_numpy():
    file = io.BytesIO()
    tinytorch.save({"array": np.arange(3.0), "number": np.float32(1.5)}, file)
    program = zipfile.ZipFile(file).read("archive/data.pkl")
    assert b"numpy" in program and b"tinytorch" not in program


def test_a_whole_network(device):
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Sequential(nn.Linear(2, 2)))
    net[2][0].weight = nn.Parameter(tinytorch.eye(2), requires_grad=False)
    net.to(device).eval()
    net.tied, net.scale = net[0].weight, np.float32(2)
    net.register_forward_hook(hook_of_a_module)
    file = io.BytesIO()
    tinytorch.save(net, file)
    found = tinytorch.load(file, weights_only=False)
    x = tinytorch.ones(1, 3, device=device)
    assert repr(found) == repr(net) and not found.training and not found[2][0].training
    assert found(x).tolist() == net(x).tolist() and found.tied is found[0].weight
    assert not found[2][0].weight.requires_grad and found.scale == 2
    assert isinstance(found.tied, nn.Parameter) and found.tied.device == tinytorch.device(device)
    there = tinytorch.load(file, map_location="cpu", weights_only=False)
    assert there[0].weight.device.type == "cpu"


def hook_of_a_module(module, args, output):
    return output * module.scale.item()


def test_the_same_value_makes_the_same_bytes():
    files = io.BytesIO(), io.BytesIO()
    for file in files:
        tinytorch.save({"x": tinytorch.arange(5), "lr": 0.1}, file)
    assert files[0].getvalue() == files[1].getvalue()


def test_a_function_that_fails_is_not_taken_for_a_damaged_file():
    with pytest.raises(KeyError):
        round_trip(tinytorch.ones(1), map_location=lambda storage, location: {}[location])


def test_a_file_in_the_middle_of_other_things(tmp_path):
    with open(tmp_path / "file", "w+b") as file:
        file.write(b"before")
        tinytorch.save(tinytorch.ones(2), file)
        assert tinytorch.load(file).tolist() == [1, 1]


def test_members_are_stored_at_multiples_of_64():
    file = io.BytesIO()
    tinytorch.save([tinytorch.full((n,), float(n)) for n in range(1, 20)], file)
    for n in range(1, 20):
        assert file.getvalue().index(np.full(n, n, np.float32).tobytes()) % 64 == 0
    with zipfile.ZipFile(file) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.namelist()[0] == "archive/data.pkl"
        assert archive.read("archive/version") == b"3\n"


# Files that are not as they should be.


def rewritten(content, *changes, compression=zipfile.ZIP_STORED, **members):
    """The file with changes of its pickle, and with other members; its checksums are right."""
    result = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(result, "w", compression) as new,
    ):
        for name in old.namelist():
            data = members.get(name.split("/")[1].replace(".", "_"), old.read(name))
            for before, after in changes if name.endswith("data.pkl") else ():
                assert before in data
                data = data.replace(before, after)
            new.writestr(name, data)
    result.seek(0)
    return result


def program(*opcodes):
    """A file whose pickle consists of these opcodes."""
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2" + b"".join(opcodes) + b".")
    return result


def refused(file, reason):
    with pytest.raises(pickle.UnpicklingError, match=f"cannot load the file: .*{reason}"):
        tinytorch.load(file)


def saved_bytes(value=None):
    file = io.BytesIO()
    tinytorch.save({"x": tinytorch.arange(100), "y": [1, 2]} if value is None else value, file)
    return file.getvalue()


def test_a_file_that_ends_too_early(tmp_path):
    whole = saved_bytes()
    for length in [0, 1, 4, 30, *range(50, len(whole), 97), len(whole) - 1]:
        (tmp_path / "broken").write_bytes(whole[:length])
        with pytest.raises(pickle.UnpicklingError, match="cannot load .*broken: File is not a zip"):
            tinytorch.load(tmp_path / "broken")


def test_a_flipped_bit_is_noticed():
    whole = saved_bytes()
    place = whole.index(np.arange(100).tobytes()) + 123
    broken = whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :]
    refused(io.BytesIO(broken), "Bad CRC-32")


def test_a_foreign_file(tmp_path):
    with zipfile.ZipFile(other := io.BytesIO(), "w") as archive:
        archive.writestr("tinytorch.json", b"{}")
    refused(other, "no item named")
    with zipfile.ZipFile(empty := io.BytesIO(), "w"):
        pass
    refused(empty, "")
    refused(io.BytesIO(b"hello"), "not a zip file")
    refused(io.BytesIO(random.Random(0).randbytes(1000)), "not a zip file")
    refused(io.BytesIO(pickle.dumps({"x": 1}, protocol=2)), "bare pickle, as PyTorch wrote before")
    with pytest.raises(FileNotFoundError):
        tinytorch.load(tmp_path / "missing")


def test_what_pytorch_can_be_told_of_its_pickles(tmp_path):
    tinytorch.save([1], tmp_path / "file", pickle, pickle_protocol=4)
    assert tinytorch.load(tmp_path / "file", "cpu", pickle, weights_only=False, mmap=True) == [1]


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit",)


def test_a_file_cannot_call_functions():
    for value, name in (
        (Trap(), "__builtin__.exec"),
        (Unknown, "Unknown"),
        (np.float64(1), "numpy"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=rf"needs .*{name}.*save a state_dict\(\)"):
            tinytorch.load(program(pickle.dumps(value, 2)[2:-1]))


SET, LATIN = b"c__builtin__\nset\n", b"c_codecs\nencode\nX\1\0\0\0a"
ORDERED, NESTED = b"ccollections\nOrderedDict\n)R", b")" + b"\x85" * 200_000
WRONG = {
    "no pickle": (),
    "no stack": (b"0",),
    "other opcode": (b"(i__builtin__\nexec\n",),
    "a mark that is not there": (b"]e",),
    "memo": (b"h\7",),
    "append to a tuple": (b")Na",),
    "items of a list": (b"]NNs",),
    "an odd number of items": (b"}(NNNu",),
    "a list as key": (b"}]Ns",),
    "call of a list": (b"])R",),
    "arguments in a list": (SET, b"]R"),
    "a set of a string": (SET, b"X\3\0\0\0abc\x85R"),
    "a set of lists": (SET, b"](]e\x85R"),
    "another encoding": (LATIN, b"X\4\0\0\0idna\x86R"),
    "not in latin1": (b"c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R",),
    "not in UTF-8": (b"X\1\0\0\0\xff",),
    "a string that is longer than the file": (b"X\xff\xff\xff\xffabc",),
    "an integer that is longer than the file": (b"\x8a\xff1",),
    "a name without an end": (b"cos",),
    "attributes of a list": (b"]}b",),
    "a method": (ORDERED, b"}X\6\0\0\0updateNsb"),
    "attributes that are no dict": (ORDERED, b"Nb"),
    "a device": (b"ctorch\ndevice\nX\3\0\0\0abc\x85R",),
    "a parameter of a list": (b"ctorch._utils\n_rebuild_parameter\n]\x88", ORDERED, b"\x87R"),
    "an id that is not one": (b"NQ",),
    "an id of a storage that is not there": (
        b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0", b"0X\3\0\0\0cpuJ\xff\xff\xff\x7ftQ"
    ),
    "a deep key": (b"}", NESTED, b"Ns"),
    "a deep set": (SET, b"]", NESTED, b"a\x85R"),
    "2^60 values in a key": (b"})", b"q\0h\0\x86" * 60, b"Ns"),
    "copies of a list": (SET, b"q\1](", b"N" * 9999, b"eq\0", b"h\1h\0\x85R" * 9999),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_pickle_that_is_not_sound(name):
    refused(program(*WRONG[name]), "")


def test_depth_needs_no_recursion(tmp_path):
    for opcodes in (b"]" * 100_000 + b"a" * 99_999, NESTED, b"}" + b"N}" * 99_999 + b"s" * 99_999):
        assert len(tinytorch.load(program(opcodes))) == 1
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested so deeply"):
        tinytorch.save(deep, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="an integer of 376 bytes"):
        tinytorch.save(2**3000, tmp_path / "file")


HUNDRED, COUNT = b"(\x8a\x01dt", b"cpu\x8a\x01dt"
LIES = {
    "a size": ((HUNDRED, b"(\x8a\x02\xc8\0t"), "beyond its storage"),
    "a huge size": ((HUNDRED, b"(\x8a\x08" + b"\xff" * 7 + b"\x7ft"), "beyond its storage"),
    "two dimensions": ((HUNDRED, b"(K\x0aK\x0at"), "zip"),
    "a negative size": ((HUNDRED, b"(\x8a\x01\x9ct"), "natural number"),
    "a size that is not a number": ((HUNDRED, b"(Nt"), "natural number"),
    "a stride": ((HUNDRED, b"(\x8a\x01\x02t"), None),
    "a number of elements": ((COUNT, b"cpu\x8a\x01ct"), "800 bytes for 99 elements"),
    "a huge number": ((COUNT, b"cpu\x8a\x08" + b"\xff" * 7 + b"\x7ft"), "800 bytes for"),
    "a type": ((b"LongStorage", b"HalfStorage"), "800 bytes for 100 elements"),
    "a complex type": ((b"LongStorage", b"ComplexFloatStorage"), "needs torch.ComplexFloatStorage"),
    "a type that is not a storage": ((b"_rebuild_tensor_v2", b"_rebuild_tensor_v3"), "tensor_v3"),
    "a gradient of integers": ((b"\x89c", b"\x88c"), "floating point"),
    "a kind": ((b"X\7\0\0\0storage", b"X\7\0\0\0garbage"), "persistent id"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies(lie):
    change, reason = LIES[lie]
    file = rewritten(saved_bytes(), change)
    if reason is None:
        assert len(tinytorch.load(file)["x"]) == 2
    else:
        refused(file, reason)


def test_an_archive_that_lies():
    whole = saved_bytes()
    refused(rewritten(whole, compression=zipfile.ZIP_DEFLATED), "compressed")
    first = whole.index(b"PK\1\2")
    for place, number in ((20, 2**31 - 1), (24, 2**31 - 1), (42, 2**31 - 1), (8, 1)):
        changed = bytearray(whole)
        struct.pack_into("<H" if place == 8 else "<I", changed, first + place, number)
        refused(io.BytesIO(bytes(changed)), "")
    # One storage of 80 KB in a thousand members would be 80 MB.
    large = saved_bytes(tinytorch.arange(10_000))
    first, end = large.index(b"PK\1\2"), large.rindex(b"PK\5\6")
    entry = large.index(b"PK\1\2", large.index(b"data/0", first) - 60)
    entry = large[entry : large.index(b"PK\1\2", entry + 4)]
    tail = bytearray(large[end:])
    struct.pack_into("<HHI", tail, 8, 1000, 1000, 1000 * len(entry))
    refused(io.BytesIO(large[:first] + entry * 1000 + bytes(tail)), "overlap")


def test_files_of_machines_with_another_order_of_bytes():
    content = np.arange(100).byteswap().tobytes()
    order = {"little": b"big", "big": b"little"}[sys.byteorder]
    whole = saved_bytes(tinytorch.arange(100))
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(f := io.BytesIO(), "w") as new:
        new.writestr("archive/data.pkl", old.read("archive/data.pkl"))
        new.writestr("archive/byteorder", order)
        new.writestr("archive/data/0", content)
    assert tinytorch.load(f).tolist() == [*range(100)]


def test_an_order_of_bytes_that_is_none_is_refused():
    whole = saved_bytes(tinytorch.ones(2))
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(f := io.BytesIO(), "w") as new:
        for info in old.infolist():
            junk = info.filename.endswith("/byteorder")
            new.writestr(info, b"junk" if junk else old.read(info))
    refused(f, "Unknown endianness type: junk")


def test_mutations_give_one_kind_of_error():
    """Changes of all bytes of a file, and of its pickle with a right checksum."""
    value = {
        "x": tinytorch.arange(24.0).reshape(4, 6).T,
        "p": nn.Parameter(tinytorch.ones(2)),
        "other": [{1, 2}, b"xy", Counter("aab"), OrderedDict(a=1), (1.5, None, 2**40), "text"],
        "kinds": [tinytorch.float16, tinytorch.Size([2]), tinytorch.device("cpu")],
    }
    whole, rng = saved_bytes(value), random.Random(0)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        good = archive.read("archive/data.pkl")
    opcodes = b"(.N\x88K\x8aX]})t\x85\x86aesubRQh\x00qrc0j\xff"
    failures = 0
    for number in range(400):
        data = bytearray(whole if number % 4 == 0 else good)
        for _ in range(rng.choice([1, 1, 3])):
            place = rng.randrange(len(data))
            data[place : place + rng.choice([0, 1, 1, 9])] = bytes([rng.choice(opcodes)])
        file = io.BytesIO(data) if number % 4 == 0 else rewritten(whole, data_pkl=bytes(data))
        try:
            tinytorch.load(file)
        except pickle.UnpicklingError as error:
            assert str(error).startswith("cannot load the file: ")
            failures += 1
        except RuntimeError as error:
            assert "map_location='cpu'" in str(error)  # "cpu" became another name of a device
    assert failures > 200


SWITCHES = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@pytest.mark.parametrize(
    "always, never, given, plain",
    [
        ("", "", None, True),
        ("", "", True, True),
        ("", "", False, False),
        ("1", "", False, True),
        ("yes", "0", None, True),
        ("no", "", False, False),
        ("", "true", None, False),
        ("", "y", True, True),
        ("0", "1", False, False),
        ("", "2", None, True),
    ],
)
def test_environment_variables_decide_whether_objects_are_loaded(
    monkeypatch, always, never, given, plain
):
    for name, value in zip(SWITCHES, (always, never), strict=True):
        monkeypatch.setenv(name, value)
    model, options = nn.Linear(2, 1), {} if given is None else {"weights_only": given}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if plain:
            with pytest.raises(pickle.UnpicklingError):
                round_trip(model, **options)
        else:
            assert repr(round_trip(model, **options)) == repr(model)
    by_variable = given is None and not plain
    assert [SWITCHES[1] in str(each.message) for each in caught] == [True] * by_variable
    assert round_trip({"lr": 0.1}, weights_only=True) == {"lr": 0.1}


def test_both_environment_variables_are_refused(monkeypatch):
    for name in SWITCHES:
        monkeypatch.setenv(name, "1")
    for options in ({}, {"weights_only": True}):
        with pytest.raises(RuntimeError, match="Both .* are set"):
            round_trip([1], **options)


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


def test_save_keeps_the_rights_of_the_file_that_it_replaces(tmp_path):
    path = tmp_path / "file"
    tinytorch.save(1, path)
    path.chmod(0o640)
    tinytorch.save(2, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and tinytorch.load(path) == 2


def test_save_keeps_the_owner(tmp_path, monkeypatch):
    path = tmp_path / "file"
    tinytorch.save(1, path)
    if os.geteuid() == 0:  # only root may give a file away
        os.chown(path, 1234, 4321)
        tinytorch.save(2, path)
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)
        os.chown(path, 0, 0)
    # To another user, to whom the file is open for writing: it is written and not replaced.
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    before = path.stat().st_ino
    tinytorch.save(3, path)
    assert path.stat().st_ino == before and tinytorch.load(path) == 3


READ_ONLY = """
import os, sys, tinytorch
tinytorch.load(sys.argv[1])  # imports all that it needs: this user may not read our packages
if os.geteuid() == 0:
    os.chown(sys.argv[1], 1234, 1234)
    os.chown(os.path.dirname(sys.argv[1]), 1234, 1234)
    os.setgid(1234)
    os.setuid(1234)
try:
    tinytorch.save(2, sys.argv[1])
except PermissionError as error:
    assert error.filename == sys.argv[1], error
else:
    sys.exit("it is written")
assert tinytorch.load(sys.argv[1]) == 1
os.chmod(sys.argv[1], 0o644)
tinytorch.save(2, sys.argv[1])
assert tinytorch.load(sys.argv[1]) == 2
"""


def test_save_refuses_a_file_that_its_owner_has_protected():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(os.path.realpath(folder), "file")
        tinytorch.save(1, path)
        os.chmod(path, 0o444)
        subprocess.run([sys.executable, "-c", READ_ONLY, path], check=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_interrupts_leave_no_descriptor(tmp_path):
    def interrupt(*args):
        raise KeyboardInterrupt

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    tinytorch.save(1, tmp_path / "file")
    begun = time.perf_counter()
    for _ in range(20):
        tinytorch.save(1, tmp_path / "file")
    usual, before, hits = (time.perf_counter() - begun) / 20, descriptors(), 0
    previous, dice = signal.signal(signal.SIGALRM, interrupt), random.Random(1)
    try:
        for _ in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + dice.random() * usual)
                try:
                    tinytorch.save(1, tmp_path / "file")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (KeyboardInterrupt, ValueError):  # zipfile makes the second of some
                hits += 1
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert hits > 100 and descriptors() == before
    assert tinytorch.load(tmp_path / "file") == 1 and os.listdir(tmp_path) == ["file"]


AS_ANOTHER_USER = """
import os, pathlib, sys, tinytorch
folder = pathlib.Path(sys.argv[1])
tinytorch.load(folder / "file")  # imports all that it needs: this user may not read our packages
if os.geteuid() == 0:
    os.chown(folder / "file", 1234, 1234)
    os.setgid(1234)
    os.setuid(1234)
tinytorch.save([1, 2], folder / "file")
assert tinytorch.load(folder / "file") == [1, 2]
try:
    tinytorch.save(1, folder / "new")
except PermissionError as error:
    assert error.filename.endswith("new")
else:
    sys.exit("it is written")
"""


def test_save_in_a_folder_that_takes_no_new_files():
    with tempfile.TemporaryDirectory() as folder:  # every user may enter this one
        os.chmod(folder, 0o755)
        tinytorch.save(1, Path(folder, "file"))
        os.chmod(folder, 0o555)
        try:
            subprocess.run([sys.executable, "-c", AS_ANOTHER_USER, folder], check=True)
        finally:
            os.chmod(folder, 0o755)


def test_save_to_a_name_as_long_as_names_may_be(tmp_path):
    for name in ("n" * 250, "n" * 255):
        tinytorch.save(1, tmp_path / name)
        assert tinytorch.load(tmp_path / name) == 1


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no files without a name")
def test_a_killed_save_leaves_no_other_file(tmp_path):
    for number in range(8):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "file")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(0.003 * number)
            process.kill()
    # One or two may be there, of processes that were killed after they named their file and before
    # they put it in place. Unfinished files, which nearly all of these had, are gone.
    assert "file" in os.listdir(tmp_path) and len(os.listdir(tmp_path)) <= 4


def test_systems_without_nameless_files(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    tinytorch.save(1, tmp_path / "file")
    tinytorch.save(2, tmp_path / "file")
    assert tinytorch.load(tmp_path / "file") == 2 and os.listdir(tmp_path) == ["file"]
    monkeypatch.setattr(os, "fsync", lambda number: os.close(-1))
    with pytest.raises(OSError, match="Bad file"):
        tinytorch.save(3, tmp_path / "file")
    assert tinytorch.load(tmp_path / "file") == 2 and os.listdir(tmp_path) == ["file"]


def test_load_needs_the_memory_of_the_tensors_once(tmp_path):
    tinytorch.save(tinytorch.zeros(1 << 24), tmp_path / "file")
    tracemalloc.start()
    loaded = tinytorch.load(tmp_path / "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * loaded.nbytes


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_save_writes_to_what_is_not_a_regular_file(tmp_path):
    tinytorch.save(tinytorch.ones(3), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    tinytorch.save(tinytorch.arange(3), tmp_path / "pipe")
    reader.join()
    assert tinytorch.load(io.BytesIO(received[0])).tolist() == [0, 1, 2]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(IsADirectoryError):
        tinytorch.save(1, tmp_path)
