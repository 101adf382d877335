"""Step streams06: A pool rounds sizes up

Sentences have different lengths, and the last batch of an epoch is smaller. If every step asks for
sizes of its own, the pool of step streams05 never has the size that is asked for: the demo shows 0
hits of 400, and a pool that has taken a megabyte for steps that need 10,100 bytes at a time.

So sizes are rounded up, to few of them, each of which occurs often:

    up to 4,096 bytes     multiples of 512:      400 -> 512,  513 -> 1,024
    above                 powers of two:         5,000 -> 8,192

What is asked for is in `in_use` with its rounded size, so it goes back to the right list.

Rounding wastes: a quarter of a large block on average, half of it at worst. That is why two numbers
are counted: `used` is what is given out, `reserved` what the pool has taken from CUDA. (PyTorch has
memory_allocated and memory_reserved. nvidia-smi shows the second, so a program looks larger there
than its tensors are.)

The trap: both directions must use the rounded size. A pool that rounds when it gives, but puts back
under the size that was asked for, finds nothing again.

(The pools of CuPy and PyTorch round to multiples of 512 only. They also split a large block in two,
and join neighbours that are free, so that large sizes waste little.)

Changed: Pool.
Try: `return size` in Pool.size_class, and see what happens to the hits.
"""


class Pool:
    """A caching allocator: what is freed is kept by size, and given out again.

    A number, its address, stands for a piece of memory.
    """

    def __init__(self):
        self.next_address = 0
        self.free_blocks = {}  # size -> addresses that are not in use
        self.in_use = {}  # address -> size
        self.requests = self.hits = self.used = self.reserved = 0

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
            address, self.next_address = self.next_address, self.next_address + size
            self.reserved += size
        self.in_use[address] = size
        self.used += size
        return address

    def free(self, address):
        size = self.in_use.pop(address)
        self.used -= size
        self.free_blocks.setdefault(size, []).append(address)


if __name__ == "__main__":
    import weakref

    class Memory:
        """A piece of a pool that goes back when the last reference to it goes."""

        def __init__(self, pool, size):
            self.address = pool.malloc(size)
            weakref.finalize(self, pool.free, self.address)

    def train(pool, steps, sizes):
        for number in range(steps):
            held = [Memory(pool, size + number) for size in sizes]  # batches differ a little
            del held

    class Exact(Pool):  # step streams05
        def size_class(self, size):
            return size

    for kind in (Exact, Pool):
        pool = kind()
        train(pool, 100, [400, 700, 5000, 4000])
        print(f"{kind.__name__}: {pool.hits} hits of {pool.requests}, {pool.reserved} bytes taken")
        # -> Exact: 0 hits of 400, 1029800 bytes taken
        # -> Pool: 395 hits of 400, 22016 bytes taken
    print([pool.size_class(size) for size in (1, 512, 513, 5000)])  # -> [512, 512, 1024, 8192]
    piece = Memory(pool, 5000)
    print("asked for 5000; used", pool.used, "reserved", pool.reserved)
    # -> asked for 5000; used 8192 reserved 22016
    del piece
    print("used", pool.used)  # -> used 0
