"""Which GPU is current, what it is, and how to wait for it."""

from typing import Any

from tinytorch.core.device import Device
from tinytorch.cuda.backend import check_available, cupy, is_available


def current_device() -> int:
    """The number of the GPU that "cuda" without a number means. RuntimeError without a GPU."""
    check_available()
    return cupy.cuda.runtime.getDevice()


def device_index(device: Any) -> int:
    """The number of a GPU from a number, "cuda:1", a Device, or None for the current one."""
    if isinstance(device, str):
        device = Device(device)
    if isinstance(device, Device):
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = device.index
    check_available()
    return current_device() if device is None else device


def set_device(device: Any) -> None:
    """Makes a GPU the current one. Operations run on the GPU that is current: see `device`."""
    index = device_index(device)
    if index >= 0:  # -1 changes nothing, as in PyTorch
        cupy.cuda.Device(index).use()


class device:
    """`with tinytorch.cuda.device(1):` makes GPU 1 the current one inside."""

    def __init__(self, device: Any):
        self.index = device_index(device)

    def __enter__(self) -> None:
        self.before = current_device()
        set_device(self.index)

    def __exit__(self, *exception: Any) -> None:
        set_device(self.before)


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, such as "NVIDIA H200"."""
    index = device_index(device)
    return cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The generation of a GPU as (major, minor): (9, 0) is Hopper."""
    index = device_index(device)
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    return properties["major"], properties["minor"]


def synchronize(device: Any = None) -> None:
    """Waits until the GPU has done all that it was given."""
    index = device_index(device)
    cupy.cuda.Device(index).synchronize()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device type that computes beside the CPU: cuda where it is there, else None."""
    return Device("cuda") if is_available() else None
