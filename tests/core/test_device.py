"""Devices: one object for each place, PyTorch's errors, and the seam for another array library."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import grad
from tinytorch.core.device import (
    Device,
    array_types,
    as_device,
    backends,
    cpu,
    device_of,
    silence_numpy,
)


def test_one_object_for_each_place():
    assert Device("cpu") is cpu is Device("cpu") is tinytorch.device("cpu")
    assert Device("cuda:1") is Device("cuda", 1) is Device(Device("cuda:1"))
    assert Device("cuda") is not Device("cuda:0")
    assert Device("cuda:0") != Device("cuda:1")
    assert len({Device("cpu"), Device("cpu"), Device("cuda:1"), Device("cuda", 1)}) == 2


def test_type_index_and_text():
    place = Device("cuda:1")
    assert (place.type, place.index) == ("cuda", 1)
    assert (cpu.type, cpu.index) == ("cpu", None)
    assert (str(place), repr(place)) == ("cuda:1", "device(type='cuda', index=1)")
    assert (str(cpu), repr(cpu)) == ("cpu", "device(type='cpu')")


def test_copies_are_the_same_object():
    for place in (cpu, Device("cuda:1")):
        assert pickle.loads(pickle.dumps(place)) is place
        assert copy.deepcopy(place) is place


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("gpu",), RuntimeError, "Expected one of cpu, cuda.* device type.*: gpu"),
        (("CPU",), RuntimeError, "Invalid device string: 'CPU'"),
        (("cuda:",), RuntimeError, "Invalid device string: 'cuda:'"),
        (("cuda:-1",), RuntimeError, "Invalid device string: 'cuda:-1'"),
        (("",), RuntimeError, "Invalid device string: ''"),
        (("cuda:1", 1), RuntimeError, "must not include an index"),
        ((1.5,), TypeError, "must be str, not float"),
        ((None,), TypeError, "must be str, not NoneType"),
    ],
)
def test_what_names_no_device_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Device(*arguments)


def test_a_device_argument():
    assert as_device(None) is cpu
    assert as_device("cpu") is cpu
    assert as_device(Device("cpu")) is cpu
    assert as_device(1) is Device("cuda:1")


def test_a_known_type_without_hardware_says_so(monkeypatch):
    monkeypatch.setitem(backends, "cuda", None)
    absent = Device("cuda:97")  # naming it is fine; holding a tensor is not
    with pytest.raises(RuntimeError, match="No cuda device is available"):
        _ = absent.xp
    with pytest.raises(RuntimeError, match="No cuda device is available"):
        tinytorch.tensor(1.0, device=absent)


def test_the_cpu_computes_with_numpy():
    assert cpu.xp is np
    assert device_of(np.zeros(2)) is cpu


def test_what_is_no_array_has_no_device():
    with pytest.raises(TypeError, match="not an array of a known device"):
        device_of([1.0])


def test_a_device_has_no_other_attributes():
    with pytest.raises(AttributeError, match="'Device' object has no attribute 'memory'"):
        _ = cpu.memory


def test_a_tensor_knows_its_device(device):
    x = tinytorch.tensor([1.0, 2.0], device=device)
    assert x.device is device_of(x.array)
    assert str(x.device) == device
    assert array_types[type(x.array)] == device.partition(":")[0]
    assert (x + x).device is x.device
    assert x.is_cuda == device.startswith("cuda")
    assert x.get_device() == (-1 if x.device.index is None else x.device.index)


def test_to_moves_and_the_gradient_comes_back(device):
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    there = x.to(device)
    assert str(there.device) == device
    assert (there is x) == (device == "cpu")
    (there * there).backward(tinytorch.tensor([1.0, 10.0], device=device))
    assert x.grad.device is cpu
    assert x.grad.tolist() == [2.0, 40.0]
    assert there.cpu().tolist() == [1.0, 2.0]


def test_to_copies_the_memory(device):
    x = tinytorch.tensor([1.0, 2.0])
    there = x.to(device, copy=True)
    there += 1.0
    assert x.tolist() == [1.0, 2.0]
    assert there.tolist() == [2.0, 3.0]


def test_two_devices_do_not_mix(strict_device):
    here = tinytorch.tensor([1.0, 2.0])
    there = tinytorch.tensor([1.0, 2.0], device=strict_device)
    for a, b in ((here, there), (there, here)):
        with pytest.raises(RuntimeError, match="at least two devices, cpu, strict"):
            a + b
    with pytest.raises(RuntimeError, match="device"):
        here.grad = there


def test_a_0d_cpu_tensor_is_welcome_everywhere(strict_device):
    number = tinytorch.tensor(3.0, requires_grad=True)
    x = tinytorch.tensor([1.0, 2.0], device=strict_device, requires_grad=True)
    y = number * x
    assert y.device is x.device
    assert y.tolist() == [3.0, 6.0]
    y.backward(tinytorch.tensor([1.0, 1.0], device=strict_device))
    assert number.grad.device is cpu
    assert number.grad.item() == 3.0
    assert x.grad.tolist() == [3.0, 3.0]


def test_numpy_takes_only_what_is_on_the_host(strict_device):
    x = tinytorch.tensor([1.0, 2.0], device=strict_device)
    with pytest.raises(TypeError, match="can't convert strict device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert strict"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [1.0, 2.0]


def test_the_default_device_is_where_new_tensors_go(strict_device):
    assert tinytorch.get_default_device() is tinytorch.device("cpu")
    with tinytorch.device(strict_device) as place:
        assert tinytorch.get_default_device() is place
        new = [
            tinytorch.zeros(2),
            tinytorch.tensor([1.0]),
            tinytorch.arange(3),
            tinytorch.Tensor(2),
        ]
        assert all(x.device is place for x in new)
        with tinytorch.device("cpu"):
            assert str(tinytorch.ones(1).device) == "cpu"
        assert tinytorch.ones(1).device is place
    tinytorch.set_default_device(strict_device)
    try:
        assert tinytorch.rand(2).device is place
        found = []
        thread = threading.Thread(target=lambda: found.append(str(tinytorch.ones(1).device)))
        thread.start()
        thread.join()
        assert found == ["cpu"]
    finally:
        tinytorch.set_default_device(None)
    assert str(tinytorch.zeros(1).device) == "cpu"


def test_numpy_is_silenced_once_on_each_thread():
    def first_calls():
        found.append(np.geterr()["over"])
        silence_numpy()
        found.append(np.geterr()["over"])
        np.seterr(over="raise")  # a program's own setting
        for call in (silence_numpy, lambda: tinytorch.ones(2) * 2.0):
            call()
            found.append(np.geterr()["over"])

    found = []
    thread = threading.Thread(target=first_calls)
    thread.start()
    thread.join()
    assert found == ["warn", "ignore", "raise", "raise"]


@pytest.mark.parametrize(
    "first",
    [
        lambda x: tinytorch.tensor(1e300, dtype=tinytorch.float32),
        lambda x: x / 0.0,
        lambda x: x.mul_(1e300),
        lambda x: x.fill_(float("inf")).sub_(x),
        lambda x: grad((x.requires_grad_() * 1e30).sum() * 1e30, x),
    ],
)
def test_the_first_call_of_a_thread_does_not_warn(first):
    def call():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            first(x)
        seen.append([str(each.message) for each in found])

    x, seen = tinytorch.tensor([1.0, 0.0]), []
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert seen == [[]]
