"""Step storage02: Views: other shape, stride and offset, same storage

In the demo of step storage01 the transpose is written by hand, strides and all. But the rule is
simple, and so are the rules of the other views. None of them touches the storage:

    transpose        exchanges two entries of shape and two of stride
    t[i]             offset + i * stride; the dimension goes
    t[start:]        offset + start * stride
    t[::2]           twice the stride, half the size
    expand           a new dimension of stride 0: the index goes up, the place stays the same

So a view costs a few small numbers, whatever the size of the tensor. A write through one view shows
in all, since there is only one storage.

The traps. A view of three numbers can keep a storage of millions alive. And a write through a view
of stride 0 changes several elements at once; step inplace03 refuses it.

PyTorch: views; a base tensor and its views have the same untyped_storage().

Changed: StridedArray: __getitem__, transpose, expand, tolist.
Try: t[:, ::-1] for t of the demo. Is the result right? (Tensors refuse it: step indexing08.)
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

    def tolist(self):
        return [self[i].tolist() if len(self.shape) > 1 else self[i] for i in range(self.shape[0])]


if __name__ == "__main__":
    t = StridedArray([1, 2, 3, 4, 5, 6], [2, 3])
    print("t[1, 2] =", t[1, 2], "t[-1] =", t[-1].tolist())  # -> t[1, 2] = 6 t[-1] = [4, 5, 6]
    flipped = t.transpose(0, 1)
    print(flipped.shape, flipped.stride, flipped.tolist())
    # -> (3, 2) (1, 3) [[1, 4], [2, 5], [3, 6]]
    print("same storage:", flipped.storage is t.storage)  # -> same storage: True

    row, column = t[1], t[:, 1]
    print("row    ", row.tolist(), row.offset, row.stride)  # -> row     [4, 5, 6] 3 (1,)
    print("column ", column.tolist(), column.offset, column.stride)  # -> column  [2, 5] 1 (3,)
    print("every 2nd", t[:, ::2].tolist(), t[:, ::2].stride)
    # -> every 2nd [[1, 3], [4, 6]] (3, 2)
    print("twice  ", row.expand(2).tolist(), row.expand(2).stride)
    # -> twice   [[4, 5, 6], [4, 5, 6]] (0, 1)

    t.storage[4] = 50  # all views see it
    print(row.tolist(), column.tolist(), flipped[1, 1])  # -> [4, 50, 6] [2, 50] 50
    try:
        t[2]
    except IndexError as error:
        print(error)  # -> index 2 is out of bounds for a dimension with size 2
