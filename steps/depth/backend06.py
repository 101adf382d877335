"""Step backend06: The current GPU

A machine may have eight GPUs, and "cuda" names none of them. It means the current one: CUDA keeps a
number for each thread of the CPU, and what is allocated or started goes to the GPU of that number.

The number can be given in four ways, and programs use them all: 1, "cuda:1", Device("cuda", 1), and
None for the current one. device_index makes one number of them, so that no other function has to
ask. A device that is not a GPU is an error, rather than a 0.

    set_device(1)              from here on
    with device(1): ...        inside; the number before is back at the end

The trap is the first form: a function that calls set_device and does not set it back moves the work
of its caller to another GPU, where the caller's tensors are not. So PyTorch recommends the second
form, which restores the number even if an error ends the block. -1 changes nothing, as in PyTorch,
so that code without a GPU to choose can pass it.

(An operation runs where its operands live, and CuPy expects the current GPU to be that one. For one
program with several GPUs, a process for each is simpler: step ddp02.)

New: current_device, device_index, set_device, device.
Try: raise an error inside of `with device(1)`. Which GPU is current afterwards?
"""

from typing import Any

from tinytorch.core.device import Device
from tinytorch.cuda.backend import check_available, cupy


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


if __name__ == "__main__":
    import types

    class SimulatedDevice:
        """A machine with two GPUs, of which one is current."""

        current = 0

        def __init__(self, index):
            self.index = index

        def use(self):
            SimulatedDevice.current = self.index

    def attempt(action):
        """What an action gives, or what it says."""
        try:
            return action()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    print("without a number:", attempt(lambda: device_index(None)))  # -> ...
    print(attempt(lambda: device_index("cpu")))
    # -> ValueError: Expected a cuda device, but got: cpu

    runtime = types.SimpleNamespace(getDevice=lambda: SimulatedDevice.current)
    cupy = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Device=SimulatedDevice, runtime=runtime)
    )
    check_available = lambda: None  # noqa: E731  (from here on, two GPUs are simulated)

    print([device_index(each) for each in (1, "cuda:1", Device("cuda", 1), "cuda", None)])
    # -> [1, 1, 1, 0, 0]
    with device("cuda:1"):
        print("inside:", current_device())  # -> inside: 1
    print("afterwards:", current_device())  # -> afterwards: 0
    set_device(1)
    print("from here on:", current_device())  # -> from here on: 1
    set_device(-1)
    print("-1 changes nothing:", current_device())  # -> -1 changes nothing: 1
