"""How much memory tensors take on a GPU, and how much the pool holds for them."""

from typing import Any

from tinytorch.cuda.backend import cupy, is_available
from tinytorch.cuda.device import device_index

# Number of a GPU -> the most bytes that were in use there at once.
peaks: dict[int, int] = {}


class OutOfMemoryError(RuntimeError):
    """The GPU has less memory left than an operation asked for."""


def watched_malloc(size: int) -> Any:
    """Memory from CuPy's pool. Looks at each piece, for the peak, and raises PyTorch's error."""
    pool = cupy.get_default_memory_pool()
    try:
        memory = pool.malloc(size)
    except cupy.cuda.memory.OutOfMemoryError as error:
        free, total = cupy.cuda.runtime.memGetInfo()
        raise OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. The GPU has "
            f"{total / 2**20:.0f} MiB, {free / 2**20:.0f} MiB of them free. Tensors take "
            f"{pool.used_bytes() / 2**20:.0f} MiB, of {pool.total_bytes() / 2**20:.0f} MiB in the "
            f"pool."
        ) from error
    used, index = pool.used_bytes(), cupy.cuda.runtime.getDevice()
    if used > peaks.get(index, 0):
        peaks[index] = used
    return memory


def watch() -> bool:
    """Lets CuPy ask us for memory, where there is a GPU."""
    if is_available():
        cupy.cuda.set_allocator(watched_malloc)
    return is_available()


watching = watch()


def pool_bytes(device: Any, name: str) -> int:
    """used_bytes or total_bytes of CuPy's pool on a GPU; 0 where there is none."""
    if not is_available():
        return 0
    with cupy.cuda.Device(device_index(device)):
        return getattr(cupy.get_default_memory_pool(), name)()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors take on the GPU now, rounded up as the pool rounds. 0 without a GPU."""
    return pool_bytes(device, "used_bytes")


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from the GPU: those of tensors, and those that it keeps."""
    return pool_bytes(device, "total_bytes")


def max_memory_allocated(device: Any = None) -> int:
    """The largest memory_allocated since the start, or since reset_peak_memory_stats()."""
    return max(peaks.get(device_index(device), 0), memory_allocated(device)) if watching else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets max_memory_allocated start from what is allocated now."""
    if is_available():
        peaks[device_index(device)] = memory_allocated(device)


def empty_cache() -> None:
    """Gives the memory that the pool keeps, and no tensor uses, back to the GPU."""
    if is_available():
        cupy.get_default_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the GPU, as its driver sees them. RuntimeError without a GPU."""
    index = device_index(device)
    with cupy.cuda.Device(index):
        return cupy.cuda.runtime.memGetInfo()
