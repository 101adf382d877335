"""safetensors files: round trips, what is refused, and a package that is missing."""

import json
import os
import sys

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.core.dtype import DType
from tinytorch.serialization.safetensors import load, load_file, save, save_file

safetensors = pytest.importorskip("safetensors")


def header_of(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


@pytest.mark.parametrize("dtype", DType.by_name.values(), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)], ids=str)
def test_tensors_come_back(device, dtype, shape):
    count = int(np.prod(shape))
    x = tinytorch.tensor(np.arange(count).reshape(shape), dtype=dtype, device=device)
    y = load(save({"x": x, "other": tinytorch.ones(3)}), device=device)["x"]
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    assert y.tolist() == x.tolist() and not y.requires_grad
    y.add_(1 if dtype is not tinytorch.bool else True)  # the memory is its own


def test_files_and_metadata(tmp_path, device):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(device)
    path = tmp_path / "model.safetensors"
    save_file(model.state_dict(), path, {"epoch": "3"})
    assert header_of(path.read_bytes())["__metadata__"] == {"epoch": "3"}
    other = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to(device)
    other.load_state_dict(load_file(str(path), device=device))
    x = tinytorch.randn(5, 4, device=device)
    assert tinytorch.equal(model(x), other(x))
    assert {t.device.type for t in load_file(path).values()} == {"cpu"}


def test_what_is_refused():
    x = tinytorch.arange(6.0).reshape(2, 3)
    with pytest.raises(ValueError, match="Expected a dict"):
        save([x])
    with pytest.raises(ValueError, match="`a` is not a Tensor"):
        save({"a": 1.0})
    with pytest.raises(ValueError, match="`turned` is not contiguous"):
        save({"turned": x.T})
    with pytest.raises(RuntimeError, match=r"share memory.*\['whole', 'row'\]"):
        save({"row": x[0], "whole": x})
    with pytest.raises(RuntimeError, match="share memory"):
        save({"a": x, "b": x})
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(RuntimeError, match=r"\['0.weight', '1.weight'\]"):
        save(tied.state_dict())
    assert set(load(save({"a": x[0], "b": x[1]}))) == {"a", "b"}  # side by side is not shared
    with pytest.raises(TypeError):
        save({"x": x}, {"epoch": 3})


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    save_file({"x": tinytorch.ones(2)}, path)
    with pytest.raises(ValueError):
        save_file({"x": tinytorch.ones(2, 3).T}, path)
    assert load_file(path)["x"].tolist() == [1, 1] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("length", [0, 4, 8, 20, 60])
def test_a_file_that_ends_too_early(tmp_path, length):
    whole = save({"x": tinytorch.arange(100)})
    (tmp_path / "file").write_bytes(whole[:length])
    with pytest.raises(safetensors.SafetensorError):
        load_file(tmp_path / "file")


def test_an_element_type_that_is_not_here():
    text = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    with pytest.raises(RuntimeError, match="`x` has elements of type F8_E4M3"):
        load(len(text).to_bytes(8, "little") + text + b"\0\0")


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (lambda: save({"x": tinytorch.ones(1)}), lambda: load(b"")):
        with pytest.raises(ImportError, match=r"pip install safetensors"):
            call()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        save_file({"x": tinytorch.ones(1)}, os.path.join(tmp_path, "no", "folder"))


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62], [0, 2**70]], ids=str)
def test_shapes_that_numpy_cannot_have(tmp_path, shape):
    content = b"" if 0 in shape else bytes(4)
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, len(content)]}
    head = json.dumps({"weight": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + content)
    with pytest.raises(safetensors.SafetensorError, match="cannot load .*model.safetensors: "):
        load_file(path)
