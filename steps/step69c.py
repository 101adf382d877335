"""Step 69c: Row order against column order

If a transpose is free, does it matter in which order elements lie? A processor does not fetch one
number from memory. It fetches a line of 64 bytes, 8 numbers of float64, and keeps it in a cache
nearby, where it stays until others have taken its place:

    row by row          fetch 1 line, read 8 numbers of it, fetch the next
    column by column    fetch 1 line, read 1 number of it, fetch another far away, ...

`fetches` plays a cache of four lines. Of a matrix of 16 x 16, read by rows, it fetches each line
once: 256 / 8 = 32. Read by columns, a line is thrown out before its second number is asked for: 256
fetches. In a small matrix the lines stay, and the order does not matter.

The real cache has thousands of lines, and a processor that sees a regular pattern fetches ahead.
The demo measures both orders on 32 MB with NumPy, in turns. Here columns took about 3 to 10 times
as long; the factor depends on the machine.

The trap: `x.T` is free, and the loop that runs over it later pays. Where a result is read often in
another order, contiguous() pays once.

PyTorch: channels_last is a choice of strides for images, made for this reason.

New: fetches.
Try: kept=16 for the columns of the large matrix. Why is that enough?
"""

import math


def row_order(shape):
    """The strides of a tensor whose elements lie in memory in the order in which one reads them."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


class Tensor:
    """A tensor in plain Python.

    memory: a flat list of numbers. shape, steps (the strides), start (the offset): how to read it.
    """

    def storage(self):
        return self.memory

    def stride(self):
        return self.steps

    def storage_offset(self):
        return self.start

    def tolist(self):
        """The elements as nested lists."""
        if not self.shape:
            return self.memory[self.start]
        starts = [self.start + i * self.steps[0] for i in range(self.shape[0])]
        return [as_strided(self, self.shape[1:], self.steps[1:], i).tolist() for i in starts]

    def transpose(self, dim0, dim1):
        """The dimensions exchanged; no element is moved."""
        order = list(range(len(self.shape)))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(*order)

    def permute(self, *dims):
        """The dimensions in another order; no element is moved."""
        size, stride = [self.shape[d] for d in dims], [self.steps[d] for d in dims]
        return as_strided(self, size, stride, self.start)

    def is_contiguous(self):
        """Whether the elements lie in memory in the order in which one reads them."""
        each = zip(self.shape, self.steps, row_order(self.shape), strict=True)
        return all(n == 1 or step == usual for n, step, usual in each)  # 1 takes no step

    def contiguous(self):
        """The tensor itself if it is contiguous, else a copy that is."""
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        """A copy with a storage of its own."""
        return from_list([self.memory[i] for i in places(self)], self.shape)


def as_strided(input, size, stride, storage_offset):
    """Another tensor on the storage of `input`."""
    out = Tensor()
    out.memory, out.shape = input.memory, tuple(size)
    out.steps, out.start = tuple(stride), storage_offset
    return out


def tensor(data):
    """A new tensor with the numbers of nested lists, all of one length at each depth."""
    shape, level = [], [data]
    while level and isinstance(level[0], list):
        shape.append(len(level[0]))
        level = [item for row in level for item in row]
    return from_list(level, shape)


def from_list(numbers, shape):
    """A tensor on a list of numbers, in row order."""
    out = Tensor()
    out.memory, out.shape, out.steps, out.start = numbers, tuple(shape), row_order(shape), 0
    return out


def place(x, *index):
    """Where in the storage the element of x with this index lies."""
    return x.storage_offset() + sum(i * step for i, step in zip(index, x.stride(), strict=True))


def places(x):
    """The places of all elements of x in its storage, in the order in which one reads them."""
    found = [x.storage_offset()]
    for size, step in zip(x.shape, x.stride(), strict=True):
        found = [i + k * step for i in found for k in range(size)]
    return found


def fetches(x, line=8, kept=4):
    """How often memory is asked for a line of numbers when the elements of x are read in order."""
    cache, count = [], 0
    for i in places(x):
        number = i // line
        if number in cache:
            cache.remove(number)
        else:
            count += 1
        cache = [*cache, number][-kept:]  # the line that was not used for longest has to go
    return count


if __name__ == "__main__":
    import time

    import numpy as np

    for n in (4, 16):
        x = tensor([[n * i + j for j in range(n)] for i in range(n)])
        print(f"{n} x {n} by rows:", fetches(x), "by columns:", fetches(x.transpose(0, 1)))
        # -> 4 x 4 by rows: 2 by columns: 2
        # -> 16 x 16 by rows: 32 by columns: 256

    a = np.ones((2048, 2048))
    rows, columns = [], []
    for _ in range(3):
        for times, lines in ((rows, a), (columns, a.T)):
            start = time.perf_counter()
            for line in lines:
                line.sum()
            times.append(time.perf_counter() - start)
    print("columns take longer:", min(columns) > 1.2 * min(rows))  # -> columns take longer: True
