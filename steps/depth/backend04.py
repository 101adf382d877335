"""Step backend04: A backend's address, strided view and chunk size

CuPy's arrays have NumPy's functions, but differ inside. Three places of tinytorch depend on that.

storage_offset() (step storage01) is the difference of two addresses. NumPy's arrays tell theirs by
__array_interface__; CuPy's do not, since nothing on the CPU could use it. So with the backend of
step backend03 it fails in the demo.

unfold makes a view by shape and strides. CuPy has as_strided too, but its view has no `base`: it
keeps the memory alive, and does not say whose memory it shows. So a write into it would not be
counted for the owner (storage_of, step 66a). A view made by view() has its base, and its shape
and strides can be set. (The two True at the end let CuPy work out anew whether it is contiguous.)

The third is speed. An optimizer goes through its parameters in pieces of 32,768 elements, because
these fit into the CPU's cache. On a GPU each piece costs a separate call, so one large piece is
best: chunk_elements is None.

    address          array -> place of its first element
    strided          (array, shape, strides) -> a view
    chunk_elements   how many elements to handle at a time

These are arguments of Backend, so nothing outside of this module knows CuPy. The trap is to write
`if device == "cuda"` where something differs: the next library would need it again, everywhere.

Changed: register. New: strided_view.
Try: leave out address=... in register again. Which operations of the demo still work?
"""

import warnings
import weakref
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
    import contextlib
    import types

    from tinytorch.core.device import numpy_address
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import conversion, indexing, storage  # noqa: F401  (their methods)

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU: NumPy's, under a type of their own."""

        device = types.SimpleNamespace(id=0)

        @property
        def __array_interface__(self):
            raise AttributeError("an array of CuPy has no __array_interface__")

        @property
        def data(self):
            return types.SimpleNamespace(ptr=self.ctypes.data)

    class SimulatedCupy:
        """NumPy's functions. Given arrays of this type, they return arrays of this type."""

        ndarray, asnumpy = Simulated, staticmethod(np.array)

        def array(self, array):
            memory = Simulated(array.shape, array.dtype)  # of its own, and no view of NumPy's
            memory[...] = array
            return memory

        def __getattr__(self, name):
            return getattr(np, name)

    SimulatedCupy.cuda = types.SimpleNamespace(
        is_available=lambda: True, Device=lambda index: contextlib.nullcontext()
    )

    def strided_in_numpy(array, shape, strides):  # the simulated arrays are NumPy's
        view = np.lib.stride_tricks.as_strided(np.asarray(array), shape, strides)
        return view.view(Simulated)

    def look_inside():
        x = tensor([0.0, 1.0, 2.0, 3.0, 4.0]).to("cuda")
        return x.unfold(0, 3, 1).tolist(), x[2:].storage_offset()

    if not is_available():
        backends["cuda"] = None
        cupy, strided_view = SimulatedCupy(), strided_in_numpy
        backend = register()
    right, backend.address = backend.address, numpy_address  # as in step backend03
    try:
        look_inside()
    except AttributeError as error:
        print(type(error).__name__)  # -> AttributeError
    backend.address = right
    print(look_inside())
    # -> ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], 2)
    x = tensor([0.0, 1.0]).to("cuda")
    print("an address:", x.data_ptr() == x.array.data.ptr)  # -> an address: True
    print("elements at a time:", cpu.backend.chunk_elements, backend.chunk_elements)
    # -> elements at a time: 32768 None
