"""Step 70g: Streams, events and a pool of memory

`a @ b` on a GPU returns before anything is computed. The CPU puts the kernel into a queue, called a
stream, and goes on; the GPU works through the queue in order. Only a request for a number waits:
item(), tolist(), cpu(). So a stopwatch around `a @ b` measures how long it takes to order a
product. To time the product itself, use Events: a mark in the stream before it, a mark after it,
and the GPU's own time between the two.

Two streams are two queues. While one computes on a batch, the other can fetch the next (from pinned
memory, or it cannot). `wait_stream` makes one wait for the other without stopping the CPU. The demo
counts: if fetching and computing take turns, 3 batches take 6 units of time; if they overlap, 4.

The other cost is memory. CUDA's own calls for it, cudaMalloc and cudaFree, make the GPU wait, and a
training step asks for hundreds of pieces, the same ones every time. So nothing is given back: a
pool keeps what was freed, sorted by size, and hands it out again. From the second step on every
request is a hit.

    sizes are rounded up (here: to multiples of 512 bytes, large ones to powers of two),
    so that only a few sizes occur, and each of them often

Our tensors need nothing extra for this. They die by reference count (there are no cycles), so their
memory is back in the pool as soon as the last name for them is gone. Three things hold memory
longer than you might think: a list of losses that still have their graph (keep loss.item()), a
small view of a large tensor, and a name that outlives its loop. memory_allocated says what tensors
hold, memory_reserved what the pool holds; if the first keeps growing, you have a leak. empty_cache
gives back the difference. A full GPU raises an OutOfMemoryError: try smaller batches first.

Pool is such an allocator in plain Python, with counts. CuPy has its own, in C; watched_malloc hooks
into its requests, to record the peak and raise PyTorch's error.

Changed: nothing; step 69u is finished. New: Pool, to look at; tinytorch/cuda/streams.py, memory.py.
Try: `return size` in Pool.size_class, and see what happens to the hit rate.
"""

from typing import Any

from tinytorch.cuda.backend import check_available, cupy, is_available
from tinytorch.cuda.device import device_index


class Pool:
    """A caching allocator: what is freed is kept by size, and given out again.

    Memory is played by a number, its address. `limit` is what the GPU has.
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


class Event:
    """A mark in a stream: record it, then wait for it, or measure the time between two of them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False):
        check_available()
        self.cupy = cupy.cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self, stream: "Stream | None" = None) -> None:
        """Puts the mark at the end of what the stream (the current one by default) has to do."""
        self.cupy.record((current_stream() if stream is None else stream).cupy)

    def wait(self, stream: "Stream | None" = None) -> None:
        """Lets the stream wait for the mark. The CPU does not wait."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether all work before the mark is done."""
        return self.cupy.done

    def synchronize(self) -> None:
        """Lets the CPU wait until all work before the mark is done."""
        self.cupy.synchronize()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds on the GPU from this mark to another; both with enable_timing=True."""
        return cupy.cuda.get_elapsed_time(self.cupy, end_event.cupy)


class Stream:
    """A queue of work on a GPU. What is in one stream is done in order; streams do not wait for
    one another unless told so. Use it with `with tinytorch.cuda.stream(s):`.

    Memory belongs to the stream that was current when it was asked for. Before another stream uses
    a tensor, let it wait: `other.wait_stream(s)`; and keep the tensor until that has been done.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, cupy_stream: Any = None):
        check_available()
        if cupy_stream is None:
            with cupy.cuda.Device(device_index(device)):
                cupy_stream = cupy.cuda.Stream(non_blocking=True, priority=priority)
        self.cupy = cupy_stream

    def synchronize(self) -> None:
        """Lets the CPU wait until the stream is empty."""
        self.cupy.synchronize()

    def query(self) -> bool:
        """Whether the stream is empty."""
        return self.cupy.done

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """What is put into this stream from now on starts after the event's mark."""
        self.cupy.wait_event(event.cupy)

    def wait_stream(self, stream: "Stream") -> None:
        """What is put into this stream from now on starts after all that `stream` has now."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Stream) and self.cupy.ptr == other.cupy.ptr

    def __hash__(self) -> int:
        return hash(self.cupy.ptr)


class stream:
    """`with tinytorch.cuda.stream(s):` puts the work inside into stream s; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.cupy.__enter__()

    def __exit__(self, *exception: Any) -> None:
        if self.stream is not None:
            self.stream.cupy.__exit__(*exception)


def current_stream() -> Stream:
    """The stream into which operations are put now."""
    check_available()
    return Stream(cupy_stream=cupy.cuda.get_current_stream())


def default_stream() -> Stream:
    """The stream that is current until another one is chosen."""
    check_available()
    return Stream(cupy_stream=cupy.cuda.Stream.null)


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
    import sys
    import tracemalloc
    import weakref

    import numpy as np

    from tinytorch.autograd import engine  # noqa: F401  (backward)
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic, matmul, reduction  # noqa: F401  (their methods)

    # Two queues of work, planned: each batch is fetched (1 unit) and computed with (1 unit).
    def finish(batches, streams):
        """When the last batch is done: fetching and computing share one stream, or have two."""
        brought = computed = 0
        for _ in range(batches):
            begin = brought if streams == 2 else computed
            brought = begin + 1
            computed = max(brought, computed) + 1
        return computed

    print("3 batches, one stream:", finish(3, 1), "units; two:", finish(3, 2))
    # -> 3 batches, one stream: 6 units; two: 4

    class Memory:
        """A piece of a pool that goes back when the last reference to it goes."""

        def __init__(self, pool, size):
            self.address = pool.malloc(size)
            weakref.finalize(self, pool.free, self.address)

    def train(pool, steps, sizes):
        for number in range(steps):
            held = [Memory(pool, size + number) for size in sizes]  # batches differ a little
            del held

    pool = Pool(limit=1 << 20)
    print([pool.size_class(size) for size in (1, 512, 513, 5000)])  # -> [512, 512, 1024, 8192]
    train(pool, 1, [400, 700, 5000, 400])
    print("after one step:", pool.hits, "hits of", pool.requests, "- in use", pool.used)
    # -> after one step: 0 hits of 4 - in use 0
    train(pool, 99, [400, 700, 5000, 400])
    print(f"after 100 steps: {pool.hits / pool.requests:.0%} hits, {pool.reserved} bytes held")
    # -> after 100 steps: 99% hits, 10240 bytes held
    whole = Memory(pool, 5000)
    view = whole  # a view is a second reference to the same memory
    del whole
    print("a view keeps its base alive:", pool.used)  # -> a view keeps its base alive: 8192
    del view
    print("freed with the last name:", pool.used)  # -> freed with the last name: 0
    leak = []
    try:
        while True:
            leak.append(Memory(pool, 100_000))
    except MemoryError as error:
        print(len(leak), "pieces, then:", error)
        # -> 8 pieces, then: 131072 bytes wanted, 0 left
    leak.clear()
    print("used", pool.used, "reserved", pool.reserved)  # -> used 0 reserved 1048576
    pool.empty_cache()
    print("after empty_cache:", pool.reserved)  # -> after empty_cache: 0

    # Our tensors: a graph and all it holds go with the last name, and nothing grows.
    alive = []

    def step(w):
        hidden = w @ w
        alive.append(weakref.ref(hidden.array))
        loss = (hidden * hidden).sum()
        loss.backward()
        w.grad = None
        return loss.item()

    w = tensor(np.eye(4, dtype=np.float32), requires_grad=True)
    step(w)  # the first step fills caches
    tracemalloc.start()
    memory = []
    for _ in range(3):
        losses = [step(w) for _ in range(50)]
        memory.append(tracemalloc.get_traced_memory()[0] - sys.getsizeof(alive))
    tracemalloc.stop()
    grown = (memory[2] - memory[1]) / 50  # a weak reference in `alive` takes some 70 bytes
    print(f"memory is flat, but for the list: {grown < 200}")
    # -> memory is flat, but for the list: True
    print("arrays of all steps that are still alive:", sum(ref() is not None for ref in alive))
    # -> arrays of all steps that are still alive: 0

    def on_a_gpu():
        """A product timed by the CPU's watch and by events; copies beside products; memory."""
        import time

        a = tensor(np.ones((4096, 4096), np.float32), device="cuda")
        a @ a
        begin, end = Event(enable_timing=True), Event(enable_timing=True)
        current_stream().synchronize()
        started = time.perf_counter()
        begin.record()
        a @ a
        end.record()
        ordered = 1000 * (time.perf_counter() - started)
        end.synchronize()
        host = tensor(np.ones((2048, 2048), np.float32)).pin_memory()
        copies, seconds = Stream(), {}
        for way in ("one stream", "two streams"):
            current_stream().synchronize()
            started = time.perf_counter()
            for _ in range(10):
                with stream(copies if way == "two streams" else None):
                    host.to("cuda", non_blocking=True)
                a @ a
            copies.synchronize()
            current_stream().synchronize()
            seconds[way] = round(time.perf_counter() - started, 4)
        memory = [memory_allocated(), max_memory_allocated(), memory_reserved()]
        return ordered, begin.elapsed_time(end), seconds, memory

    print("ms to order, ms to compute, overlap, memory:", end=" ")
    print(on_a_gpu() if is_available() else "left out, for want of a GPU")  # -> ...
    print("allocated without one:", memory_allocated() if not is_available() else 0)
    # -> allocated without one: 0
