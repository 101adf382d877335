"""Step 69a: Storage, stride and offset

Stage 13 is about what a tensor is made of: numbers in memory, and a few integers that say how to
read them. Then come families of operations, and at the end a tensor that lives in C.

A transpose of a million numbers takes as long as one of six. How can numbers stay where they are
when rows become columns? NumPy has hidden the answer so far. So this file begins again, without
NumPy, and holds a tensor in plain Python.

Memory has no rows. A tensor of any shape is one flat list of numbers, its storage, with a shape, a
stride for each dimension, and an offset. When an index goes up by one, the element lies one stride
further on:

    place of x[i, j] = offset + i * stride[0] + j * stride[1]

    storage  1 2 3 4 5 6    shape (2, 3), stride (3, 1)    1 2 3    x[1, 2] is at 1 * 3 + 2 * 1 = 5
                                                           4 5 6

In a new tensor the last dimension has stride 1, and each other one the product of all sizes after
it: [4, 8] has stride (8, 1). That is row order. With stride (1, 2) the same storage holds the
columns one after the other: column order. as_strided gives a storage any shape, stride and offset.

The trap: NumPy counts strides in bytes, PyTorch in elements.

PyTorch: the same names, though x.storage() warns that untyped_storage() is to replace it. And
as_strided refuses to read beyond the storage, where ours ends in an IndexError.

New: all of it. The Tensor with gradients comes back after step 70d.
Try: stride (0, 1) in the line "begins at 1". Which numbers does it read?
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
    out = Tensor()
    out.memory, out.shape, out.steps, out.start = level, tuple(shape), row_order(shape), 0
    return out


def place(x, *index):
    """Where in the storage the element of x with this index lies."""
    return x.storage_offset() + sum(i * step for i, step in zip(index, x.stride(), strict=True))


if __name__ == "__main__":
    print("strides of [4, 8]:", row_order([4, 8]), "of [2, 3, 4]:", row_order([2, 3, 4]))
    # -> strides of [4, 8]: (8, 1) of [2, 3, 4]: (12, 4, 1)

    x = tensor([[1, 2, 3], [4, 5, 6]])
    print(tuple(x.shape), x.stride(), x.storage_offset())  # -> (2, 3) (3, 1) 0
    print("x[1, 2] is at", place(x, 1, 2), "=", x.storage()[5])  # -> x[1, 2] is at 5 = 6

    # One storage, read in four ways.
    print("row order:   ", x.tolist())  # -> row order:    [[1, 2, 3], [4, 5, 6]]
    print("column order:", as_strided(x, (2, 3), (1, 2), 0).tolist())
    # -> column order: [[1, 3, 5], [2, 4, 6]]
    print("transposed:  ", as_strided(x, (3, 2), (1, 3), 0).tolist())
    # -> transposed:   [[1, 4], [2, 5], [3, 6]]
    print("begins at 1: ", as_strided(x, (2, 2), (3, 1), 1).tolist())
    # -> begins at 1:  [[2, 3], [5, 6]]
