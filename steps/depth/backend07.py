"""Step backend07: The same program on a GPU

The queries that a program makes at its start are still missing: which GPU is this, of which
generation, and is there one at all. With these, a program is the same for both machines:

    device = torch.accelerator.current_accelerator(check_available=True) or "cpu"
    model, batch = model.to(device), batch.to(device)

(Without check_available=True PyTorch says for which accelerator it was built, also on a machine
that has none. This package always looks at the machine.)

The capability is the generation: (9, 0) is Hopper, (8, 0) Ampere. Programs check it because some
instructions, for bfloat16 say, exist only from a certain generation on. synchronize() waits until
the GPU has done all its work; a time measurement needs it (step streams01).

The demo is such a program: it finds three numbers by gradient descent, on the GPU if there is one.
It counts the calls, and those among them that copy a tensor to another device: none in 100 steps.
That is what makes it fast. Everything that a step needs is on the device from the beginning, and
what it makes stays there.

The trap is code that reads a number: loss.item() for a progress bar, `if loss < best`. Each is a
transfer and makes the CPU wait, in every step; the count does not show it, since item() is not a
Function. Print every hundredth loss.

New: get_device_name, get_device_capability, synchronize, current_accelerator. With them,
tinytorch/cuda/device.py is finished.
Try: print loss.item() in the loop. Does the count notice the 100 transfers?
"""

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

    import numpy as np

    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.autograd.modes import FunctionMode, no_grad
    from tinytorch.core.device import as_device
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic, matmul, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.conversion import Transfer

    print("on this machine:", attempt(get_device_name), current_accelerator())  # -> ...

    class Transfers(FunctionMode):
        """Counts the calls that pass by, and those that bring a tensor to another device."""

        calls = transfers = 0

        def call(self, function, args):
            self.calls += 1
            self.transfers += function is Transfer
            return function.apply(*args)

    place = as_device(current_accelerator() or "cpu")
    rng = np.random.default_rng(0)
    points = rng.standard_normal((64, 3)).astype(np.float32)
    x = tensor(points).to(place)
    target = tensor(points @ np.array([[3.0], [2.0], [-1.0]], np.float32)).to(place)
    w = tensor(np.zeros((3, 1), np.float32), device=place, requires_grad=True)
    with Transfers() as counted:
        for _ in range(100):
            error = x @ w - target
            loss = (error * error).mean()
            loss.backward()
            with no_grad():
                w.sub_(w.grad, alpha=0.1)
            w.grad = None
    print("trained on the", place.type)  # -> ...
    print("calls that were seen:", counted.calls > 400)  # -> calls that were seen: True
    print("transfers in 100 steps:", counted.transfers)  # -> transfers in 100 steps: 0
    print("w =", [round(v, 3) for [v] in w.tolist()])  # -> w = [3.0, 2.0, -1.0]

    # From here on, two GPUs are simulated.
    waits = []
    SimulatedDevice.synchronize = lambda self: waits.append(self.index)
    properties = {"name": b"A simulated GPU", "major": 9, "minor": 0}
    runtime = types.SimpleNamespace(
        getDevice=lambda: SimulatedDevice.current, getDeviceProperties=lambda index: properties
    )
    cupy = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Device=SimulatedDevice, runtime=runtime)
    )
    check_available, is_available = (lambda: None), (lambda: True)
    print(get_device_name(), get_device_capability(1), current_accelerator())
    # -> A simulated GPU (9, 0) cuda
    synchronize()
    with device(1):
        synchronize()
    synchronize("cuda:1")
    print("waited for GPU", waits)  # -> waited for GPU [0, 1, 1]
