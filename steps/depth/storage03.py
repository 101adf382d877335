"""Step storage03: Contiguous: the order in memory

A view may lose the order in memory. Read row by row, the elements of a transpose, 1 4 2 5 3 6, are
at places 0 3 1 4 2 5: it is not contiguous. Some code needs the elements in order: a C library that
gets an address and a length, or reshape, which often cannot make a view of such a tensor (step
shape03).

    is_contiguous()    the strides are those of row order
    contiguous()       copies into row order, but only if it has to; clone() always copies

Order costs time, too. The processor fetches memory in cache lines of 64 bytes, or 16 floats, and
guesses which line comes next. Along a row it uses all of each line; down a column, only 4 bytes of
each. The demo adds up the same array both ways.

The trap: contiguous() sometimes returns the tensor itself and sometimes a copy. Then a write to the
result changes the tensor in one case, and not in the other.

PyTorch: the same names. Its memory_format=channels_last is another order, for pictures.

Changed: StridedArray: is_contiguous, contiguous.
Try: let is_contiguous compare with column order, `row_order(self.shape[::-1])[::-1]`, and see what
contiguous() then gives.
"""

import math


def row_order(shape):
    """The strides of a tensor whose elements lie in memory as one reads them."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


class StridedArray:
    """A tensor in plain Python: a list of numbers, and how to read it."""

    def __init__(self, storage, shape, stride=None, offset=0):
        self.storage = storage
        self.shape = tuple(shape)
        self.stride = row_order(self.shape) if stride is None else tuple(stride)
        self.offset = offset

    def place(self, *index):
        """Where in the storage the element with this index lies."""
        return self.offset + sum(i * step for i, step in zip(index, self.stride, strict=True))

    def __getitem__(self, index):
        """t[1, 2] is a number; t[1], t[:, ::2] are views: a new offset, other strides."""
        index = index if isinstance(index, tuple) else (index,)
        index += (slice(None),) * (len(self.shape) - len(index))
        shape, stride, offset = [], [], self.offset
        for i, size, step in zip(index, self.shape, self.stride, strict=True):
            if isinstance(i, slice):
                start, stop, by = i.indices(size)
                offset += start * step
                shape.append(len(range(start, stop, by)))
                stride.append(step * by)
            elif -size <= i < size:
                offset += (i % size) * step
            else:
                raise IndexError(f"index {i} is out of bounds for a dimension with size {size}")
        return StridedArray(self.storage, shape, stride, offset) if shape else self.storage[offset]

    def transpose(self, dim0, dim1):
        order = list(range(len(self.shape)))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        shape, stride = [self.shape[d] for d in order], [self.stride[d] for d in order]
        return StridedArray(self.storage, shape, stride, self.offset)

    def expand(self, times):
        """The same thing `times` times, along a new first dimension: its stride is 0."""
        return StridedArray(self.storage, (times, *self.shape), (0, *self.stride), self.offset)

    def is_contiguous(self):
        return self.stride == row_order(self.shape)

    def tolist(self):
        return [self[i].tolist() if len(self.shape) > 1 else self[i] for i in range(self.shape[0])]

    def contiguous(self):
        """The same elements in row order: this array, or a copy with a storage of its own."""
        if self.is_contiguous():
            return self
        flat = self.tolist()
        for _ in self.shape[1:]:
            flat = [number for part in flat for number in part]
        return StridedArray(flat, self.shape)


if __name__ == "__main__":
    import time

    import numpy as np

    t = StridedArray([1, 2, 3, 4, 5, 6], [2, 3])
    flipped = t.transpose(0, 1)
    print("contiguous:", t.is_contiguous(), flipped.is_contiguous())  # -> contiguous: True False
    places = [flipped.place(i, j) for i in range(3) for j in range(2)]
    print("its elements are at", places)  # -> its elements are at [0, 3, 1, 4, 2, 5]
    copy = flipped.contiguous()
    print("in row order:", copy.storage, copy.stride)  # -> in row order: [1, 4, 2, 5, 3, 6] (2, 1)
    print("the same elements:", copy.tolist() == flipped.tolist())  # -> the same elements: True
    print("a copy:", copy.storage is not t.storage, t.contiguous() is not t)
    # -> a copy: True False

    # Row order against column order: the same 64 MB, added up along rows or down columns.
    big = np.ones((4096, 4096), dtype=np.float32)
    times = {}
    for order, lines in (("rows", big), ("columns", big.T)):
        start = time.perf_counter()
        total = sum(float(line.sum()) for line in lines)
        times[order] = time.perf_counter() - start
        print(f"{order}: the sum is {total:.0f}")
        # -> rows: the sum is 16777216
        # -> columns: the sum is 16777216
    print(f"columns take {times['columns'] / times['rows']:.1f} times as long")  # -> ...
