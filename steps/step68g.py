"""Step 68g: The same program on a GPU

A GPU is a second computer. It has thousands of small processors, and memory of its own, which they
read at terabytes per second. They do not work in the CPU's memory: data must be brought over first,
and results brought back, across a bus that is about fifty times slower.

So PyTorch never brings anything over unasked. A tensor lives on one device, `x.to("cuda")` makes a
copy on the other, and x + y is an error if the two are on different devices. A program that asks
for a transfer in each training step (`loss.item()`, just to print it) waits for the bus each time.

We have prepared for this since step 35: an operation takes the array library, ctx.xp, from where
its arrays live. The library for the GPU is CuPy, which has NumPy's functions under NumPy's names.
All we have to do is register it: Backend(...) below does that, and no operation changes.
Some details belong to the GPU alone:

- CuPy can be installed where there is no GPU; only the first array fails. So we have to ask it.
- The operating system may move the CPU's memory around, so the GPU cannot fetch from it directly.
  pin_memory() makes a copy that stays where it is (page-locked). Then to("cuda", non_blocking=True)
  only starts the transfer, and the CPU goes on. The trap: write to the pinned tensor too early, and
  the new numbers arrive. (We only keep the memory alive until the transfer is done.)
- on_cuda is the seam for kernels of our own: one function, with another body for CuPy's arrays.

Without CuPy or a GPU, `cuda` gets a backend that tells anyone who uses it what is missing, as in
PyTorch. This step then trains on the CPU, with the same result.

What programs ask is here as well: how many GPUs there are, what their names are, which one is the
current one (`with device(1):` chooses another). And synchronize waits until it has done its work.

Changed: CAdd goes. New: tinytorch/cuda/backend.py and device.py; Tensor.pin_memory, is_pinned.
Try: print loss.item() in the loop. The count stays 0: item() is a transfer too, but no Function.
"""

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Backend, Device, backends, cpu, register_backend
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
    from tinytorch.autograd import engine  # noqa: F401  (backward)
    from tinytorch.autograd.modes import FunctionMode, no_grad
    from tinytorch.core.device import as_device
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic, matmul, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.conversion import Transfer

    def attempt(action):
        """What an action gives, or what it says."""
        try:
            return action()
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    print("a GPU that can be used:", is_available(), device_count())  # -> ...
    print("its name:", attempt(get_device_name))  # -> ...
    print(attempt(lambda: tensor([1.0]).to("cuda")))  # -> ...
    print(attempt(lambda: tensor([1.0]).pin_memory().is_pinned()))  # -> ...
    print(attempt(lambda: device_index("cpu")))
    # -> ValueError: Expected a cuda device, but got: cpu
    print(Device("cuda", 1), Device("cuda:1") is Device("cuda", 1))  # -> cuda:1 True
    print("on the CPU and not pinned:", tensor([1.0]).is_cuda, tensor([1.0]).is_pinned())
    # -> on the CPU and not pinned: False False

    class Transfers(FunctionMode):
        """Counts the calls that pass by, and those that bring a tensor to another device."""

        calls = transfers = 0

        def call(self, function, args):
            self.calls += 1
            self.transfers += function is Transfer
            return function.apply(*args)

    # Three numbers are found by gradient descent, wherever there is something to compute with.
    place = as_device("cuda" if is_available() else "cpu")
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
