"""Devices: where an array lives, and which array library computes there."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np


def numpy_address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@dataclass
class Backend:
    """An array library, as the rest of the package sees it. No other module names one.

    Attributes:
        xp: the module with NumPy's function names (numpy, cupy, ...).
        array_type: the class of its arrays.
        from_numpy: (array, index) -> an array on device number `index`.
        to_numpy: array -> numpy.ndarray in the host's memory.
        index_of: array -> number of its device, or None where there is only one.
        send: from_numpy that need not wait until the copy is done; from_numpy where it is None.
        address: array -> memory address of its first element, in bytes.
        strided: (array, shape, strides in bytes) -> a view that starts at its first element.
        random_source: device -> a source of random numbers; None: NumPy draws, and sends.
        chunk_elements: an optimizer works on this many elements at a time, so that they stay in
            the cache; None: on all of them, where each operation costs a launch.
    """

    xp: ModuleType
    array_type: type
    from_numpy: Callable[[np.ndarray, int | None], Any]
    to_numpy: Callable[[Any], np.ndarray]
    index_of: Callable[[Any], int | None] = lambda array: None
    send: Callable[[np.ndarray, int | None], Any] | None = None
    address: Callable[[Any], int] = numpy_address
    strided: Callable[[Any, tuple, tuple], Any] = np.lib.stride_tricks.as_strided
    random_source: Callable[[Any], Any] | None = None
    chunk_elements: int | None = 32768

    def __post_init__(self):
        self.send = self.send or self.from_numpy


# Device types by name. A type without a backend is known, but cannot hold a tensor on this machine.
backends: dict[str, Backend | None] = {
    "cpu": Backend(np, np.ndarray, lambda array, index: array, lambda array: array),
    "cuda": None,
}
# Which device type an array belongs to.
array_types: dict[type, str] = {np.ndarray: "cpu"}


class Device:
    """A place for tensors: `Device("cpu")`, `Device("cuda:1")`, `Device("cuda", 1)`.

    There is one object for each place, so that `is` compares two of them. `device.xp` is the array
    library of the place.

    Raises:
        RuntimeError: the string does not name a device type.
    """

    known: dict[tuple[str, int | None], "Device"] = {}

    def __new__(cls, type: "str | Device", index: int | None = None) -> "Device":
        if isinstance(type, Device):
            return type
        if not isinstance(type, str):
            raise TypeError(f"Device(): argument 'type' must be str, not {type.__class__.__name__}")
        match = re.fullmatch(r"([a-z]+)(?::(\d+))?", type)
        if match is None:
            raise RuntimeError(f"Invalid device string: '{type}'")
        if match[2] is not None:
            if index is not None:
                raise RuntimeError(f"{type!r} must not include an index: {index} was passed too")
            index = int(match[2])
        if match[1] not in backends:
            raise RuntimeError(
                f"Expected one of {', '.join(backends)} device type at start of device string: "
                f"{match[1]}"
            )
        key = (match[1], index)
        if key not in cls.known:
            device = object.__new__(cls)
            device.type, device.index = key
            cls.known[key] = device
        return cls.known[key]

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not there yet: the library is looked up at the first use.
        if name not in ("backend", "xp", "array_type"):
            raise AttributeError(f"'Device' object has no attribute '{name}'")
        backend = backends[self.type]
        if backend is None:
            raise RuntimeError(
                f"No {self.type} device is available: the array library of '{self.type}' is not "
                f"installed, or it found no hardware"
            )
        self.backend, self.xp, self.array_type = backend, backend.xp, backend.array_type
        return getattr(self, name)

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self):
        return Device, (self.type, self.index)

    def __enter__(self) -> "Device":
        default.devices.append(as_device(self))  # `with device("cuda"):` new tensors are there
        return self

    def __exit__(self, *exception: Any) -> None:
        default.devices.pop()


def register_backend(type: str, backend: Backend) -> None:
    """Make `type` a device type that can hold tensors."""
    backends[type] = backend
    array_types[backend.array_type] = type


def device_of(array: Any) -> Device:
    """The device where `array` lives.

    Raises:
        TypeError: `array` is not an array of a registered backend.
    """
    try:
        type = array_types[array.__class__]
    except KeyError:
        raise TypeError(f"not an array of a known device: {array.__class__}") from None
    return Device(type, backends[type].index_of(array))


def as_device(device: "Device | str | int | None") -> Device:
    """What a `device=` argument means: None is the default device, a number is a CUDA device."""
    if device is None:
        return default.devices[-1]
    device = Device("cuda", device) if isinstance(device, int) else Device(device)
    if device in default.stand_ins:
        return default.stand_ins[device]
    if device.index is None and device.type != "cpu" and backends[device.type] is not None:
        # "cuda" means the device that is current, which an empty array can tell.
        return device_of(device.backend.from_numpy(np.empty(0, np.float32), None))
    return device


cpu = Device("cpu")


silenced = threading.local()  # has an attribute on each thread where NumPy is silenced


def silence_numpy() -> None:
    """Turn NumPy's warnings off on this thread: 1 / 0 and 1e300 as float32 are inf, as in PyTorch.

    NumPy keeps this setting per thread. Only the first call of a thread changes it: a program may
    turn the warnings on again.
    """
    if not hasattr(silenced, "here"):
        np.seterr(all="ignore")
        silenced.here = True


class DefaultDevice(threading.local):
    """Where the new tensors of a thread go: what set_default_device says, or the last `with`."""

    def __init__(self):
        self.devices = [cpu]
        self.stand_ins: dict[Device, Device] = {}  # while a function is traced
        silence_numpy()  # here, once for each thread that makes tensors


default = DefaultDevice()


def set_default_device(device: "Device | str | int | None") -> None:
    """Make `device` the place of new tensors of this thread; None is the CPU."""
    default.devices[0] = cpu if device is None else as_device(device)


def get_default_device() -> Device:
    return default.devices[-1]
