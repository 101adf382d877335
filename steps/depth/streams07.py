"""Step streams07: Out of memory: empty_cache and the peak

The pool of step streams06 only grows, and a GPU has 80 GB, or 8. When a request no longer fits,
there are two cases. The pool may hold enough memory in other sizes: after training with one size of
batch, evaluation wants another, and all that was kept is of no use. Then it gives back what is not
in use, and asks again. If that is not enough, memory really is full, and the error says how much
was wanted and how much is left.

    empty_cache():   reserved becomes used, and the lists are empty

Calling it by hand does not make room for a program's own tensors, as the pool does it anyway before
it fails. It makes room for other programs, and it costs: all requests are misses again.

If memory is full of tensors, look for what holds them. Three things often do so too long: a list of
losses that still have their graph (keep loss.item()), a small view of a large tensor, and a name
that outlives its loop. The demo measures our own tensors: after 150 steps, all arrays of all steps
are gone; and with `losses.append(loss)`, all are still there.

`peak` is the largest `used`: it says how much larger the batch may become.

Changed: Pool (limit, peak). New: Pool.empty_cache.
Try: keep the number, loss.item(), in the list of the demo. How many arrays are alive then?
"""


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


if __name__ == "__main__":
    import weakref

    import numpy as np

    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic, matmul, reduction  # noqa: F401  (their methods)

    class Memory:
        """A piece of a pool that goes back when the last reference to it goes."""

        def __init__(self, pool, size):
            self.address = pool.malloc(size)
            weakref.finalize(self, pool.free, self.address)

    pool = Pool(limit=1 << 20)
    leak = []
    try:
        while True:
            leak.append(Memory(pool, 100_000))
    except MemoryError as error:
        print(len(leak), "pieces, then:", error)
        # -> 8 pieces, then: 131072 bytes wanted, 0 left
    leak.clear()
    print("used", pool.used, "reserved", pool.reserved, "peak", pool.peak)
    # -> used 0 reserved 1048576 peak 1048576

    # The pool holds a megabyte in pieces of 131,072. One of 524,288 is wanted.
    large = Memory(pool, 500_000)
    print("another size:", pool.used, "of", pool.reserved)  # -> another size: 524288 of 524288
    del large
    pool.empty_cache()
    print("after empty_cache:", pool.reserved)  # -> after empty_cache: 0

    # Our tensors: a graph and all it holds go with the last name.
    alive = []

    def step(w):
        hidden = w @ w
        alive.append(weakref.ref(hidden.array))
        loss = (hidden * hidden).sum()
        loss.backward()
        w.grad = None
        return loss

    def still_there():
        return sum(ref() is not None for ref in alive)

    w = tensor(np.eye(4, dtype=np.float32), requires_grad=True)
    for _ in range(150):
        loss = step(w)
    del loss
    print("arrays of 150 steps that are still alive:", still_there())
    # -> arrays of 150 steps that are still alive: 0
    alive.clear()

    def forward(w):
        hidden = w @ w
        alive.append(weakref.ref(hidden.array))
        return (hidden * hidden).sum()

    losses = [forward(w) for _ in range(150)]
    print("with a list of losses and their graphs:", still_there())
    # -> with a list of losses and their graphs: 150
