"""Step backend02: Errors where CuPy or the GPU is missing

"It is not installed, or it found no hardware", says step backend01. The user needs to know which of
the two it is, and what to do. This is the most frequent error on the way to a GPU, and there are
two cases:

    CuPy is not installed      pip install cupy-cuda12x
    CuPy finds no GPU          the driver is missing, or the card

When should the message be shown? Not when tinytorch is imported: most programs run on the CPU and
need no GPU. Not in is_available() either, which programs ask in order to choose. It belongs where a
program uses the device: x.to("cuda"), zeros(3, device="cuda").

So without a GPU, `cuda` gets a backend all the same: MissingBackend, whose array library is a
property that raises the error. A program that does not use it does not see it.

The trap is the moment at which a device looks for its backend. It does so at the first use, and
keeps what it finds; since MissingBackend raises an error, nothing is kept.

device_count() is 0 where no GPU can be used, so that `for i in range(device_count())` is right
everywhere. PyTorch says the same: "Torch not compiled with CUDA enabled", or "Found no NVIDIA
driver".

Changed: register. New: device_count, check_available, MissingBackend.
Try: let is_available() call check_available(). Which program can no longer choose?
"""

import warnings
from typing import Any

import numpy as np

from tinytorch.core.device import Backend, backends, register_backend


def load_cupy() -> Any:
    """CuPy, or None where it is not installed. It can be imported without a GPU, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where it finds no CUDA; we ask it ourselves
            import cupy
    except ImportError:
        return None
    return cupy


cupy = load_cupy()


def is_available() -> bool:
    """Whether there is a GPU that tinytorch can use."""
    return cupy is not None and cupy.cuda.is_available()


def device_count() -> int:
    """The number of GPUs; 0 where tinytorch can use none."""
    return cupy.cuda.runtime.getDeviceCount() if is_available() else 0


def check_available() -> None:
    """Raises RuntimeError where no GPU can be used; the message says what is missing."""
    if cupy is None:
        raise RuntimeError(
            "No CUDA device is available: CuPy is not installed. On a machine with an NVIDIA GPU: "
            "pip install cupy-cuda12x"
        )
    if not is_available():
        raise RuntimeError(
            "No CUDA device is available: CuPy finds no NVIDIA GPU, or no driver for it. See "
            "https://www.nvidia.com/drivers"
        )


class MissingBackend:
    """Sentinel for a backend that is not available; any use raises an error that says why."""

    @property
    def xp(self) -> Any:
        check_available()


def from_numpy(array: np.ndarray, index: int | None) -> Any:
    with cupy.cuda.Device(index):
        return cupy.array(array)


def register() -> Backend | MissingBackend:
    """Makes CuPy the backend of `cuda`, or lets `cuda` say what is missing."""
    if not is_available():
        backends["cuda"] = MissingBackend()
        return backends["cuda"]
    backend = Backend(
        cupy,
        cupy.ndarray,
        from_numpy,
        cupy.asnumpy,
        index_of=lambda array: array.device.id,
    )
    register_backend("cuda", backend)
    return backend


backend = register()


if __name__ == "__main__":
    import types

    from tinytorch.core.tensor import tensor
    from tinytorch.ops import conversion  # noqa: F401  (Tensor.to)
    from tinytorch.ops.creation import zeros

    def attempt(action):
        """What an action gives, or what it says."""
        try:
            return action()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    print("on this machine:", is_available(), device_count())  # -> ...
    kept = cupy

    cupy = None  # where CuPy is not installed
    print(is_available(), device_count(), type(register()).__name__)
    # -> False 0 MissingBackend
    print(attempt(lambda: tensor([1.0]).to("cuda")))
    # -> RuntimeError: No CUDA device is available: CuPy is not installed. On a machine with ...
    print(attempt(lambda: zeros(3, device="cuda:1"))[:76])
    # -> RuntimeError: No CUDA device is available: CuPy is not installed. On a machi

    # CuPy on a machine that has no GPU; then one with two.
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
    print(attempt(check_available))
    # -> RuntimeError: No CUDA device is available: CuPy finds no NVIDIA GPU, or no driver ...
    cupy.cuda.is_available = lambda: True
    cupy.cuda.runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    print(is_available(), device_count(), attempt(check_available))  # -> True 2 None
    cupy.ndarray, cupy.asnumpy = type("Array", (np.ndarray,), {}), np.asarray
    print(type(register()).__name__)  # -> Backend
    cupy = kept
    backend = register()
