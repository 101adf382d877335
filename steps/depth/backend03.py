"""Step backend03: Pinned memory: transfers that do not block

While a batch is copied to the GPU, the CPU waits, although the GPU can fetch from the CPU's memory
by itself. But the operating system may move that memory, or write it to a disk. So the driver first
copies the batch to a place that stays where it is, and the CPU waits.

pin_memory() makes a tensor in memory that stays (page-locked). From there, to("cuda",
non_blocking=True) only puts the transfer into the queue of the GPU, and the CPU goes on at once,
with preparing the next batch:

    pageable   CPU copies, GPU fetches | CPU goes on
    pinned     CPU goes on ...
               GPU fetches, beside it

The trap: the transfer happens later. If a program writes into the pinned tensor too early, the new
numbers are sent, and there is no error; the demo shows it. (Wait for the stream first. Reading the
result on the GPU is safe, as the queue is in order.) And if the tensor were freed before the
transfer, its memory would be used for something else. So `under_way` keeps it alive until the event
after the transfer is done (a mark in the queue, step streams02).

is_pinned looks at the storage, since a view of a pinned tensor is pinned, too. A view with gaps is
sent at once, as before: one transfer needs one piece of memory.

Changed: register (send). New: pinned, under_way, send, is_pinned, pin_memory.
Try: queue.run() before the tensor is written to. What arrives then?
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

    from tinytorch.core.tensor import tensor
    from tinytorch.ops import conversion  # noqa: F401  (Tensor.to)

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU: NumPy's, under a type of their own."""

        device = types.SimpleNamespace(id=0)

        def set(self, array, stream):
            stream.waiting.append(lambda: self.__setitem__(..., array))

    class SimulatedCupy:
        """NumPy's functions. Given arrays of this type, they return arrays of this type."""

        ndarray, asnumpy = Simulated, staticmethod(np.array)

        def array(self, array):
            return np.array(array).view(Simulated)

        def empty(self, shape, dtype):
            return Simulated(shape, dtype)

        def __getattr__(self, name):
            return getattr(np, name)

    class Queue:
        """What the GPU has been told to do, and has not done yet."""

        waiting: list = []

        def record(self):
            event = types.SimpleNamespace(done=False)
            self.waiting.append(lambda: setattr(event, "done", True))
            return event

        def run(self):
            while self.waiting:
                self.waiting.pop(0)()

    queue = Queue()

    SimulatedCupy.cuda = types.SimpleNamespace(
        is_available=lambda: True,
        Device=lambda index: contextlib.nullcontext(),
        get_current_stream=lambda: queue,
        alloc_pinned_memory=bytearray,
    )

    def attempt(action):
        """What an action gives, or what it says."""
        try:
            return action()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    backends["cuda"] = None
    cupy = SimulatedCupy()  # a GPU is simulated, whose work is done when queue.run() is called
    backend = register()

    batch = tensor([[1.0, 2.0], [3.0, 4.0]])
    host = batch.pin_memory()
    print("pinned:", batch.is_pinned(), host.is_pinned(), host.pin_memory() is host)
    # -> pinned: False True True
    there = host.to("cuda", non_blocking=True)
    print("transfers that are still to come:", len(under_way))
    # -> transfers that are still to come: 1
    queue.run()
    print("arrived:", there.tolist())  # -> arrived: [[1.0, 2.0], [3.0, 4.0]]

    there = host.to("cuda", non_blocking=True)
    host.array[...] = 7  # too early: the next batch is written over this one
    queue.run()
    print(
        "written to too early:", there.tolist()
    )  # -> written to too early: [[7.0, 7.0], [7.0, 7.0]]
    there = batch.to("cuda", non_blocking=True)
    print("from memory that is not pinned:", there.tolist(), len(queue.waiting))
    # -> from memory that is not pinned: [[1.0, 2.0], [3.0, 4.0]] 0

    row = wrap(host.array[1], cpu)
    column = wrap(host.array[:, 1], cpu)
    print("a row, a column:", row.is_pinned(), column.is_pinned())  # -> a row, a column: True True
    arrived = column.to("cuda", non_blocking=True).tolist()
    print("a column has gaps, and is sent at once:", arrived, len(queue.waiting))
    # -> a column has gaps, and is sent at once: [7.0, 7.0] 0
    there = row.to("cuda", non_blocking=True)
    del host, row, column
    print("pinned memory that is still alive:", len(pinned))
    # -> pinned memory that is still alive: 1
    queue.run()
    print("arrived:", there.tolist())  # -> arrived: [7.0, 7.0]
    under_way.clear()  # send() does it for all that is done
    print("and afterwards:", len(pinned))  # -> and afterwards: 0
    print(attempt(there.pin_memory))
    # -> RuntimeError: cannot pin a tensor on cuda:0: only CPU tensors can be pinned
