"""Step streams05: A pool of memory: who frees, and when

Step 82c built the pool: freed pieces are kept in a list for each size and handed out again, since
CUDA's own calls wait until the queue is empty. (Since CUDA 11.2 there is cudaMallocAsync, a pool in
the driver that follows the queue.) And there is no waiting: in one stream, a kernel that gets the
memory runs after the kernel that used it before.

When is a piece free? Our tensors die by reference count, as there are no cycles among them, so
their memory is back as soon as the last reference is gone. With a garbage collector that runs only
now and then, a GPU would be full before it ran.

The trap: a view is a reference, too. A slice of ten numbers keeps a gigabyte alive.

PyTorch's is called the CUDA caching allocator. CuPy has one as well, and ours uses it.

Gone: Queue. New: Pool, a model; the package uses CuPy's.
Try: sizes that differ by 1 in each step. How many hits are there after 100 steps?
"""


class Pool:
    """A caching allocator: what is freed is kept by size, and given out again.

    A number, its address, stands for a piece of memory.
    """

    def __init__(self):
        self.next_address = 0
        self.free_blocks = {}  # size -> addresses that are not in use
        self.in_use = {}  # address -> size
        self.requests = self.hits = 0

    def malloc(self, size):
        self.requests += 1
        if self.free_blocks.get(size):
            self.hits += 1
            address = self.free_blocks[size].pop()
        else:
            address, self.next_address = self.next_address, self.next_address + size
        self.in_use[address] = size
        return address

    def free(self, address):
        size = self.in_use.pop(address)
        self.free_blocks.setdefault(size, []).append(address)


if __name__ == "__main__":
    import weakref

    class Memory:
        """A piece of a pool that goes back when the last reference to it goes."""

        def __init__(self, pool, size):
            self.address = pool.malloc(size)
            weakref.finalize(self, pool.free, self.address)

    def train(pool, steps, sizes):
        for _ in range(steps):
            held = [Memory(pool, size) for size in sizes]
            del held

    class Counted:
        """CUDA's own calls: each asks the GPU."""

        calls = 0

        def malloc(self, size):
            self.calls += 1

        def free(self, address):
            self.calls += 1

    cuda, pool, sizes = Counted(), Pool(), [400, 700, 5000, 400]
    train(cuda, 100, sizes)
    print("without a pool, waits for the GPU:", cuda.calls)
    # -> without a pool, waits for the GPU: 800
    train(pool, 1, sizes)
    print(
        "after one step:", pool.hits, "hits of", pool.requests, "- pieces in use", len(pool.in_use)
    )
    # -> after one step: 0 hits of 4 - pieces in use 0
    train(pool, 99, sizes)
    print("after 100:", pool.hits, "hits of", pool.requests, "- bytes from CUDA", pool.next_address)
    # -> after 100: 396 hits of 400 - bytes from CUDA 6500

    whole = Memory(pool, 5000)
    view = whole  # a view is a second reference to the same memory
    del whole
    print("a view keeps its base alive:", list(pool.in_use.values()))
    # -> a view keeps its base alive: [5000]
    del view
    print("freed with the last name:", list(pool.in_use.values()))
    # -> freed with the last name: []
