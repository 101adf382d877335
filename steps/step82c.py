"""Step 82c: A pool of memory

What does it cost to ask for memory? Each operation needs some for its result, and frees it soon.
CUDA's cudaFree makes the CPU wait until the stream is empty, since a kernel may still use the
piece. A training step would wait hundreds of times, and the stream of step 82b would never fill.

But each step asks for the same sizes. So nothing goes back to CUDA. A pool keeps what was freed, in
a list for each size, and hands it out again:

    malloc(400)    is there a free piece of 400?  take it: a hit.  Else ask CUDA
    free           put it into the list of 400

From the second step on every request is a hit. No kernel has to wait: in one stream, the one that
gets the memory runs after the one that used it before.

When is a piece free? Python calls __del__ when the last name is gone.

The trap is a name that stays. losses.append(loss) keeps the tensor of each step, and `allocated`
grows until the memory is full. Append loss.item().

PyTorch: the caching allocator, with torch.cuda.memory_allocated() and memory_reserved(). It also
rounds sizes up and splits pieces.

New: Pool, Storage.
Try: 400 + step in place of both numbers 400. Why is the memory full, with 6,117 bytes in use?
In depth: streams01 to streams09.
"""


class Pool:
    """A caching allocator: freed pieces are kept by size and given out again.

    capacity: the bytes of the GPU. A piece of memory is a number, its address.
    """

    def __init__(self, capacity):
        self.capacity, self.reserved, self.allocated = capacity, 0, 0
        self.free_blocks = {}  # size -> addresses of free pieces
        self.hits = 0

    def malloc(self, size):
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
                print(step, pool.hits, "hits, allocated", pool.allocated, "reserved", pool.reserved)
                # -> 0 0 hits, allocated 0 reserved 6500
                # -> 1 4 hits, allocated 0 reserved 6500
                # -> 99 396 hits, allocated 0 reserved 6500
                # -> 0 0 hits, allocated 400 reserved 6500
                # -> 1 3 hits, allocated 800 reserved 6900

    train(Pool(20_000), 100, kept=0)
    try:
        train(Pool(20_000), 100, kept=1)
    except MemoryError as error:
        print(error)  # -> out of memory: 19700 bytes are in use
