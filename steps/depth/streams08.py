"""Step streams08: OutOfMemoryError

"Out of memory" is the error that a GPU shows most often. CuPy's error has a class of its own, which
no program for PyTorch catches, and its message does not say what takes the memory.

CuPy lets a program choose the allocator (set_allocator). `watched_malloc` passes each request on to
CuPy's pool. If that fails, it raises PyTorch's OutOfMemoryError, with four numbers that help:

    Tried to allocate     the size of this request
    The GPU has           total and free, by the driver: other programs count, too
    Tensors take          what is in use. If it grows from step to step, it is a leak
    in the pool           what the pool holds: empty_cache can give back the difference

When it happens: try smaller batches first.

The trap is to catch the error and go on in the `except` block: the error holds the frames in which
it was raised, and these hold the tensors. Leave the block before trying again.

Where there is no GPU, nothing is installed; the demo lets Pool of step streams07 stand in for
CuPy's pool, on a GPU of one megabyte.

New: tinytorch/cuda/memory.py, with OutOfMemoryError, watched_malloc, empty_cache, mem_get_info.
Try: let watched_malloc return pool.malloc(size) without `try`. How does the demo end?
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


class OutOfMemoryError(RuntimeError):
    """The GPU has less memory left than an operation asked for."""


def watched_malloc(size: int) -> Any:
    """Memory from CuPy's pool. Raises PyTorch's error."""
    pool = cupy.get_default_memory_pool()
    try:
        return pool.malloc(size)
    except cupy.cuda.memory.OutOfMemoryError as error:
        free, total = cupy.cuda.runtime.memGetInfo()
        raise OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. The GPU has "
            f"{total / 2**20:.0f} MiB, {free / 2**20:.0f} MiB of them free. Tensors take "
            f"{pool.used_bytes() / 2**20:.0f} MiB, of {pool.total_bytes() / 2**20:.0f} MiB in the "
            f"pool."
        ) from error


def watch() -> bool:
    """Lets CuPy ask us for memory, where there is a GPU."""
    if is_available():
        cupy.cuda.set_allocator(watched_malloc)
    return is_available()


watching = watch()


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

    # A GPU of one megabyte is simulated: CuPy's names, and our Pool behind them.
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
    watching = watch()
    (malloc,) = allocators  # CuPy would call it for each array

    kept = [malloc(100_000) for _ in range(3)]
    try:
        malloc(1_000_000)
    except RuntimeError as error:
        for sentence in str(error).split(". "):
            print(sentence)
    # -> CUDA out of memory
    # -> Tried to allocate 0.95 MiB
    # -> The GPU has 1 MiB, 1 MiB of them free
    # -> Tensors take 0 MiB, of 0 MiB in the pool.

    # What tensors have freed, the pool keeps, until it is asked to give it back.
    print("free and total:", mem_get_info())  # -> free and total: (655360, 1048576)
    del kept
    print("free and total:", mem_get_info())  # -> free and total: (655360, 1048576)
    empty_cache()
    print("after empty_cache:", mem_get_info())  # -> after empty_cache: (1048576, 1048576)
    print("smaller, then:", malloc(400_000) is not None)  # -> smaller, then: True
