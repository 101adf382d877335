"""Step streams09: Memory statistics: allocated, reserved, peak

How near the limit does a training step come? CuPy's pool counts what is used now, and does not know
its peak, which is in the middle of backward, where no line of the program can look.

But each request passes through watched_malloc of step streams08. There one can look at how much is
in use, and keep the largest number for each GPU. (CuPy adds up all blocks in use for that, so each
request costs more, the more tensors there are.)

    memory_allocated       what tensors hold: if it grows from step to step, it is a leak
    max_memory_allocated   the largest of it: how near the limit a step comes
    memory_reserved        what the pool holds: empty_cache can give back the difference

reset_peak_memory_stats begins anew, for example before each step.

The trap: sizes are those of the pool, which rounds up (step streams06). A tensor of 100,000 bytes
counts as 100,352 in CuPy's and PyTorch's pools, which round to 512, and as 131,072 in the demo's.

Where there is no GPU, the counters are 0, so that a program need not ask.

Changed: watched_malloc. New: peaks, memory_allocated, memory_reserved, max_memory_allocated,
reset_peak_memory_stats.
Try: take `peaks[index] = used` out of watched_malloc. Which number of the demo is then too small?
"""

from typing import Any

from tinytorch.cuda.backend import cupy, is_available
from tinytorch.cuda.device import device_index


class Pool:
    """A caching allocator: what is freed is kept by size, and given out again.

    A number, its address, stands for a piece of memory. `limit` is what the GPU has.
    """

    def __init__(self, limit):
        self.limit, self.next_address = limit, 0
        self.free_blocks = {}  # size -> addresses that are not in use
        self.in_use = {}  # address -> size
        self.requests = self.hits = self.used = self.peak = self.reserved = 0

    def size_class(self, size):
        """Small sizes in steps of 512 bytes, large ones in powers of two."""
        return -(-size // 512) * 512 if size <= 4096 else 1 << (size - 1).bit_length()

    def malloc(self, size):
        size = self.size_class(size)
        self.requests += 1
        if self.free_blocks.get(size):
            self.hits += 1
            address = self.free_blocks[size].pop()
        else:
            if self.reserved + size > self.limit:
                self.empty_cache()  # blocks of other sizes may be all that is missing
            if self.reserved + size > self.limit:
                raise MemoryError(f"{size} bytes wanted, {self.limit - self.reserved} left")
            address, self.next_address = self.next_address, self.next_address + size
            self.reserved += size
        self.in_use[address] = size
        self.used += size
        self.peak = max(self.peak, self.used)
        return address

    def free(self, address):
        size = self.in_use.pop(address)
        self.used -= size
        self.free_blocks.setdefault(size, []).append(address)

    def empty_cache(self):
        """Gives back what is not in use."""
        self.reserved = self.used
        self.free_blocks.clear()


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


if __name__ == "__main__":
    import contextlib
    import types
    import weakref

    print("without a GPU:", memory_allocated() if not is_available() else 0)  # -> without a GPU: 0

    def on_a_gpu():
        import numpy as np

        from tinytorch.core.tensor import tensor

        held = tensor(np.ones((1024, 1024), np.float32), device="cuda")
        numbers = [memory_allocated(), max_memory_allocated(), memory_reserved(), mem_get_info()]
        del held
        return numbers

    print(on_a_gpu() if is_available() else "left out, for want of a GPU")  # -> ...

    # From here on, a GPU of one megabyte is simulated: CuPy's names, and our Pool behind them.
    class SimulatedError(Exception):
        pass

    class Piece:
        pass

    class SimulatedPool(Pool):
        def malloc(self, size):
            try:
                address = super().malloc(size)
            except MemoryError as error:
                raise SimulatedError from error
            piece = Piece()
            weakref.finalize(piece, self.free, address)
            return piece

        def used_bytes(self):
            return self.used

        def total_bytes(self):
            return self.reserved

        free_all_blocks = Pool.empty_cache

    pool, allocators = SimulatedPool(1 << 20), []
    runtime = types.SimpleNamespace(
        memGetInfo=lambda: (pool.limit - pool.reserved, pool.limit), getDevice=lambda: 0
    )
    cuda = types.SimpleNamespace(
        memory=types.SimpleNamespace(OutOfMemoryError=SimulatedError),
        runtime=runtime,
        set_allocator=allocators.append,
        Device=lambda index: contextlib.nullcontext(),
    )
    cupy = types.SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool)
    is_available, device_index = (lambda: True), (lambda device: 0)
    peaks.clear()
    watching = watch()
    (malloc,) = allocators  # CuPy would call it for each array

    kept = malloc(100_000)
    backward = [malloc(100_000) for _ in range(3)]  # in the middle of backward
    del backward
    print("now", memory_allocated(), "peak", max_memory_allocated(), "reserved", memory_reserved())
    # -> now 131072 peak 524288 reserved 524288
    reset_peak_memory_stats()
    print("peak from here on:", max_memory_allocated())  # -> peak from here on: 131072
    print("free and total:", mem_get_info())  # -> free and total: (524288, 1048576)
    empty_cache()
    print("after empty_cache:", memory_reserved(), mem_get_info())
    # -> after empty_cache: 131072 (917504, 1048576)
    del kept
    print("all freed:", memory_allocated())  # -> all freed: 0
