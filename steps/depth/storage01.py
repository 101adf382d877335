"""Step storage01: Storage, shape, stride and offset

Views cost nothing (step shape01), a transpose of a million numbers included. How can the numbers
stay where they are when rows become columns?

Memory has one dimension. A tensor of any shape is a flat row of numbers, the storage, and three
small things that say how to read it: shape, stride and offset. The stride of a dimension is the
number of places to move in the storage when its index goes up by one:

    place of t[i, j] = offset + i * stride[0] + j * stride[1]

    storage  1 2 3 4 5 6     shape (2, 3), stride (3, 1)     1 2 3     t[1, 2] is at 1 * 3 + 2 * 1
                                                             4 5 6

In a new tensor the last dimension has stride 1, and every other dimension the product of all sizes
after it: shape [4, 8] has stride (8, 1). That is row order. In column order the first dimension has
stride 1. The same numbers with other strides are another tensor.

This stage looks inside the array. It begins with one in plain Python, where nothing is hidden; the
real Tensor has the same four things.

The trap: NumPy counts strides in bytes; PyTorch and this package count elements.

Changed: nothing. New: row_order, StridedArray.
Try: stride (0, 1) in the line "begins at 1". Which numbers of the storage are left?
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


if __name__ == "__main__":
    import numpy as np

    print("strides of [4, 8]:", row_order([4, 8]), "of [2, 3, 4]:", row_order([2, 3, 4]))
    # -> strides of [4, 8]: (8, 1) of [2, 3, 4]: (12, 4, 1)

    def rows(t):
        return [[t.storage[t.place(i, j)] for j in range(t.shape[1])] for i in range(t.shape[0])]

    t = StridedArray([1, 2, 3, 4, 5, 6], [2, 3])
    print("t[1, 2] is storage", t.place(1, 2), "=", t.storage[t.place(1, 2)])
    # -> t[1, 2] is storage 5 = 6
    print(rows(t))  # -> [[1, 2, 3], [4, 5, 6]]
    print("column order:", rows(StridedArray(t.storage, [2, 3], (1, 2))))
    # -> column order: [[1, 3, 5], [2, 4, 6]]
    print("transposed:", rows(StridedArray(t.storage, [3, 2], (1, 3))))
    # -> transposed: [[1, 4], [2, 5], [3, 6]]
    print("begins at 1:", rows(StridedArray(t.storage, [2, 2], (3, 1), offset=1)))
    # -> begins at 1: [[2, 3], [5, 6]]

    # The same in NumPy, in bytes.
    array = np.array([[1, 2, 3], [4, 5, 6]], np.int64)
    print(array.strides, array.T.strides)  # -> (24, 8) (8, 24)
