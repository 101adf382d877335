"""Step backend05: on_cuda: the dispatch in the package's dress

Step 79b gave one function another body for CuPy's arrays, by functools.singledispatch. `on_cuda` is
the decorator that registers it, where there is a CuPy, so that no module of operations imports it:

    @functools.singledispatch
    def squares(x): ...              for every type that has no body of its own

The generic body remains. The special one must agree with it, and may fall back on it:
squares.dispatch(object).

The trap is the first argument. It alone decides; a list of arrays, or the array as the second
argument, never reaches the GPU's body. Operations on tensors are not affected: they call such a
function with arrays, in `forward`.

New: on_cuda. With it, tinytorch/cuda/backend.py is finished.
Try: squares.registry in the demo. Which types does it list?
"""

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Backend, backends, cpu, register_backend
from tinytorch.core.tensor import Tensor, tensor_method, wrap
from tinytorch.core.version import storage_of


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


# Host arrays in pinned memory, by id. The operating system never moves them, so that the GPU can
# fetch from them by itself, while the CPU goes on.
pinned: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


# (event, host array) of copies that may still be under way: the array must live as long as that.
under_way: list[tuple] = []


def from_numpy(array: np.ndarray, index: int | None) -> Any:
    with cupy.cuda.Device(index):
        return cupy.array(array)


def send(array: np.ndarray, index: int | None) -> Any:
    """from_numpy, but a pinned array is fetched by the GPU while the CPU goes on."""
    if id(storage_of(array)) not in pinned or not array.flags.c_contiguous:
        return from_numpy(array, index)
    with cupy.cuda.Device(index):
        out = cupy.empty(array.shape, array.dtype)
        stream = cupy.cuda.get_current_stream()
        out.set(array, stream)
        under_way[:] = [entry for entry in under_way if not entry[0].done]
        under_way.append((stream.record(), array))
    return out


def strided_view(array: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    # CuPy's as_strided forgets whose memory its result shows; a view of CuPy's own does not.
    view = array.view()
    view._set_shape_and_strides(shape, strides, True, True)
    return view


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
        send=send,
        address=lambda array: array.data.ptr,
        strided=strided_view,
        chunk_elements=None,
    )
    register_backend("cuda", backend)
    return backend


backend = register()


def on_cuda(generic: Callable) -> Callable:
    """Decorator: the function is what `generic`, a functools.singledispatch, does for CuPy."""

    def attach(function: Callable) -> Callable:
        if is_available():
            generic.register(cupy.ndarray, function)
        return function

    return attach


@tensor_method("is_pinned")
def is_pinned(self: Tensor) -> bool:
    """Whether the tensor lies in pinned host memory."""
    return id(storage_of(self.array)) in pinned


@tensor_method("pin_memory")
def pin_memory(self: Tensor) -> Tensor:
    """A copy in pinned host memory, from which `to("cuda", non_blocking=True)` need not wait.

    Raises:
        RuntimeError: where there is no GPU, or where the tensor is not on the CPU.
    """
    if is_pinned(self):
        return self
    if self.device is not cpu:
        raise RuntimeError(f"cannot pin a tensor on {self.device}: only CPU tensors can be pinned")
    check_available()
    memory = cupy.cuda.alloc_pinned_memory(max(self.array.nbytes, 1))
    array = np.ndarray(self.array.shape, self.array.dtype, buffer=memory)
    array[...] = self.array
    pinned[id(array)] = array
    return wrap(array, cpu)


if __name__ == "__main__":
    import functools
    import types

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU: NumPy's, under a type of their own."""

    simulated = types.SimpleNamespace(
        ndarray=Simulated,
        asarray=lambda array: np.asarray(array).view(Simulated),
        cuda=types.SimpleNamespace(is_available=lambda: True),
    )

    @functools.singledispatch
    def squares(x):
        return (x * x).sum()

    @on_cuda(squares)
    def squares_on_cuda(x):
        calls.append(type(x).__name__)
        return x.reshape(-1) @ x.reshape(-1)

    calls = []
    x = np.arange(6.0).reshape(2, 3)
    print(squares(x), calls)  # -> 55.0 []
    if not is_available():
        cupy = simulated  # a GPU is simulated, and the body is attached once more
        on_cuda(squares)(squares_on_cuda)
    print(float(squares(cupy.asarray(x))), len(calls))  # -> 55.0 1
    print("the CPU's is what it was:", squares(x), len(calls))
    # -> the CPU's is what it was: 55.0 1
    print(
        "the generic body, on purpose:",
        float(squares.dispatch(object)(cupy.asarray(x))),
        len(calls),
    )
    # -> the generic body, on purpose: 55.0 1
