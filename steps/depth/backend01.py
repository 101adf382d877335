"""Step backend01: CuPy in the package's dress

Step 79a registered CuPy as the library of the device "cuda": no operation changes, since all take
ctx.xp. Here `is_available` asks whether there is a GPU too, `from_numpy` copies there, and the
backend says what else the package needs of a library.

The trap: CuPy can be installed where there is no GPU. `import cupy` succeeds, with a warning; only
the first array fails. So is_available asks CuPy, and load_cupy hides the warning.

On a machine without a GPU the demo simulates one: arrays of a type of their own, and a library
whose results are of that type. For tinytorch this is as much another device as a real one.

Changed: load_cupy, register. New: is_available, from_numpy.
Try: x + 1 for an x on "cuda", and x + tensor([1.0]). Why is only one of them an error?
"""

import warnings
from typing import Any

import numpy as np

from tinytorch.core.device import Backend, register_backend


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


def from_numpy(array: np.ndarray, index: int | None) -> Any:
    with cupy.cuda.Device(index):
        return cupy.array(array)


def register() -> Backend | None:
    """Makes CuPy the backend of `cuda`, where there is a GPU."""
    if not is_available():
        return None
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
    import contextlib
    import sys
    import types

    from tinytorch.core.device import Device, backends
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic, conversion, matmul  # noqa: F401  (their methods)

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU: NumPy's, under a type of their own."""

        device = types.SimpleNamespace(id=0)

    class SimulatedCupy:
        """NumPy's functions. Given arrays of this type, they return arrays of this type."""

        ndarray, asnumpy = Simulated, staticmethod(np.array)

        def array(self, array):
            return np.array(array).view(Simulated)

        def __getattr__(self, name):
            return getattr(np, name)

    SimulatedCupy.cuda = types.SimpleNamespace(
        is_available=lambda: True, Device=lambda index: contextlib.nullcontext()
    )

    def attempt(action):
        """What an action gives, or what it says."""
        try:
            return action()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    if not is_available():
        backends["cuda"] = None
        print(attempt(lambda: tensor([1.0]).to("cuda")))
        # -> RuntimeError: No cuda device is available: the array library of 'cuda' is not ...
        cupy = SimulatedCupy()  # from here on, a GPU is simulated
        backend = register()
    print("registered:", backend.xp is cupy)  # -> registered: True
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    y = x.to("cuda")
    print(y.device, "its arrays:", type(y.array) is cupy.ndarray)  # -> cuda:0 its arrays: True
    print((y @ y + y).tolist(), (y @ y).device)
    # -> [[8.0, 12.0], [18.0, 26.0]] cuda:0
    print(attempt(lambda: x + y))
    # -> RuntimeError: Expected all tensors to be on the same device, but found at least two ...
    print((x + y.to("cpu")).tolist(), Device("cuda:0") is y.device)
    # -> [[2.0, 4.0], [6.0, 8.0]] True

    name, module = "cupy", types.ModuleType("cupy")  # a package that can be imported
    sys.modules.setdefault(name, module)
    print("found:", load_cupy() is sys.modules[name])  # -> found: True
