"""Step program04: Memory planning: buffers that are reused

With an `out` array of its own for each value, a graph of 40 operations on a million float32 numbers
needs 40 arrays of 4 MB at once. But in a chain

    v1 = tanh(x);   v2 = v1 * 2;   v3 = v2 + x;   v4 = exp(v3);   ...

only two values are needed at any time. Once v2 is computed, v1 is not read again, and v3 can use
its memory. Compilers do the same with registers (register allocation); here it is buffers.

All sizes, and the last use of each value, are known before the first run. So `Memory` plans without
allocating. take(size) gives the number of a buffer, and the caller adds the number to `free` when
the value is dead. A free buffer that is too small grows, which costs nothing during planning. At
the end, all buffers lie side by side in one block, and each value is an array that shows a part of
the block. These arrays are created once, for all runs.

    take(400) -> 0    take(400) -> 1    free 0    take(300) -> 0    take(900) -> 2

The trap: if a small value gets a free buffer of 4 MB, the next large value needs another 4 MB. So
take() accepts a free buffer only if it is at most about twice as large as needed.

New: ALIGNMENT, Memory, block, array_at.
Try: let `take` accept any free buffer that is large enough. Which promise of the demo breaks?
"""

import itertools
import math
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: a buffer begins where a line of the processor's cache does


class Memory:
    """Finds a place in one block of bytes for each value, and gives it to later ones again.

    Attributes:
        sizes: for each buffer, the size of the largest value that it holds.
        free: the buffers that hold nothing now, the last one freed at the end.
        asked: bytes of all values together: what they would take without giving again.
    """

    def __init__(self):
        self.sizes: list[int] = []
        self.free: list[int] = []
        self.asked = 0

    def take(self, size: int) -> int:
        """The number of a buffer for `size` bytes: the smallest free one that is large enough,
        else the largest that is too small, which grows, else a new one."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        self.asked += size
        fitting = [b for b in self.free[::-1] if size <= self.sizes[b] <= 2 * size + 4096]
        small = [b for b in self.free if self.sizes[b] < size]
        if fitting:
            chosen = min(fitting, key=self.sizes.__getitem__)
        elif small:
            chosen = max(small, key=self.sizes.__getitem__)
        else:
            self.sizes.append(size)
            return len(self.sizes) - 1
        self.free.remove(chosen)
        self.sizes[chosen] = max(size, self.sizes[chosen])
        return chosen

    def offsets(self) -> list[int]:
        """Where each buffer begins; the last number is the size of the block."""
        return [0, *itertools.accumulate(self.sizes)]


def block(xp: Any, size: int) -> Any:
    """Bytes that begin at a multiple of ALIGNMENT."""
    memory = xp.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT if xp is np else 0
    return memory[start : start + size]


def array_at(memory: Any, offset: int, shape: tuple, dtype: np.dtype) -> Any:
    """An array in a block of bytes."""
    end = offset + math.prod(shape) * dtype.itemsize
    return memory[offset:end].view(dtype).reshape(shape)


if __name__ == "__main__":
    # A chain of 40 values: each buffer is free as soon as the next value is computed.
    memory = Memory()
    before = memory.take(4_000_000)
    for _ in range(39):
        after = memory.take(4_000_000)
        memory.free.append(before)
        before = after
    print(memory.sizes, memory.offsets())  # -> [4000000, 4000000] [0, 4000000, 8000000]
    print(memory.asked // 10**6, "MB in", memory.offsets()[-1] // 10**6)  # -> 160 MB in 8

    # A free buffer that is too small grows. One that is far too large is left for a large value.
    memory = Memory()
    small, large = memory.take(1000), memory.take(1_000_000)
    memory.free += [small, large]
    print(memory.take(4), memory.take(60), memory.take(2_000_000))  # -> 0 2 1
    print(memory.sizes)  # -> [1024, 2000000, 64]

    # The arrays in the block. Two values that are never needed at the same time share memory.
    memory = Memory()
    first, second = memory.take(24), memory.take(24)
    memory.free.append(first)
    third = memory.take(12)
    offsets = memory.offsets()
    place = block(np, offsets[-1])
    print(place.ctypes.data % ALIGNMENT, place.size)  # -> 0 128
    v1 = array_at(place, offsets[first], (2, 3), np.dtype("float32"))
    v2 = array_at(place, offsets[second], (2, 3), np.dtype("float32"))
    v3 = array_at(place, offsets[third], (3,), np.dtype("float32"))
    for x in (1.0, 2.0):  # two runs, and no new memory
        np.add([[x, x, x], [0, 0, 0]], 1, out=v1)
        np.multiply(v1, v1, out=v2)
        np.add.reduce(v2, axis=0, out=v3)
        print(v3, np.may_share_memory(v1, v3), np.may_share_memory(v1, v2))
    # -> [5. 5. 5.] True False
    # -> [10. 10. 10.] True False
