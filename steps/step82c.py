"""Step 82c: A pool of memory

What does it cost to ask for memory? Each operation needs some for its result, and frees it a moment
later. cudaMalloc and cudaFree make the CPU wait until the stream is empty: cudaFree cannot give
away what a kernel may still use. A training step asks hundreds of times. Each request would be a
synchronize(), and the stream of step 82b would never fill.

But each step asks for the same pieces: the same layers, the same shapes. So nothing goes back to
CUDA. A pool keeps what was freed, in a list for each size, and hands it out again:

    malloc(400)    is there a free piece of 400?  take it: a hit.  Else ask CUDA
    free           put it into the list of 400

From the second step on every request is a hit, and a look into a dictionary. There is no waiting: in
one stream, the kernel that gets the memory runs after the kernel that used it before.

When is a piece free? Python calls __del__ at once when the last name is gone, because our graphs
have no cycles. With a collector that runs now and then, a GPU would be full before.

The trap is a name that stays. A slice of ten numbers keeps a gigabyte alive. And losses.append(loss)
keeps the tensor of each step, and all that its graph has saved if there was no backward():
`allocated` grows until the memory is full. Append loss.item().

PyTorch: the caching allocator, with torch.cuda.memory_allocated() and memory_reserved(). nvidia-smi
shows what is reserved, free pieces included. It rounds sizes up and splits pieces; ours does not.

New: Pool, Storage.
Try: a size that grows by 1 in each step. How many hits are there?
"""


class Pool:
    """A caching allocator: freed pieces are kept by size and given out again.

    capacity: the bytes of the GPU. A piece of memory is a number, its address.
    """

    def __init__(self, capacity):
        self.capacity, self.reserved, self.allocated = capacity, 0, 0
        self.free_blocks = {}  # size -> addresses of free pieces
        self.requests = self.hits = 0

    def malloc(self, size):
        self.requests += 1
        if self.free_blocks.get(size):
            self.hits += 1
            address = self.free_blocks[size].pop()
        else:  # a new piece from CUDA
            if self.reserved + size > self.capacity:
                raise MemoryError(f"out of memory: {self.allocated} bytes are in use")
            address, self.reserved = self.reserved, self.reserved + size
        self.allocated += size
        return address

    def free(self, address, size):
        self.allocated -= size
        self.free_blocks.setdefault(size, []).append(address)


class Storage:
    """A piece of the pool's memory. It goes back as soon as no name refers to it any more."""

    def __init__(self, pool, size):
        self.pool, self.size, self.address = pool, size, pool.malloc(size)

    def __del__(self):
        if hasattr(self, "address"):  # malloc may have failed
            self.pool.free(self.address, self.size)


if __name__ == "__main__":

    def train(pool, steps, kept):
        """Each step needs four pieces of memory, and frees them; `kept` of them stay."""
        losses = []
        for step in range(steps):
            pieces = [Storage(pool, size) for size in (400, 700, 5000, 400)]
            losses += pieces[:kept]
            del pieces
            if step in (0, 1, 99):
                used = f"allocated {pool.allocated}, reserved {pool.reserved}"
                print(f"step {step}: {pool.hits} hits of {pool.requests}, {used}")

    train(Pool(20_000), 100, kept=0)
    # -> step 0: 0 hits of 4, allocated 0, reserved 6500
    # -> step 1: 4 hits of 8, allocated 0, reserved 6500
    # -> step 99: 396 hits of 400, allocated 0, reserved 6500
    try:
        train(Pool(20_000), 100, kept=1)
    except MemoryError as error:
        print(error)
        # -> step 0: 0 hits of 4, allocated 400, reserved 6500
        # -> step 1: 3 hits of 8, allocated 800, reserved 6900
        # -> out of memory: 19700 bytes are in use

    pool = Pool(20_000)
    base = Storage(pool, 5000)
    view = [base]  # a view refers to its base
    del base
    print("a view keeps its base alive:", pool.allocated)  # -> a view keeps its base alive: 5000
    del view
    print("freed with the last name:", pool.allocated)  # -> freed with the last name: 0
