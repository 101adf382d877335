"""Step 69b: A transpose moves nothing

In step 69a the strides of the transpose were written by hand: (3, 1) became (1, 3). That is the
whole rule. Rows and columns change their names, so shape and stride change places, and the storage
stays as it is:

    x    shape (2, 3)  stride (3, 1)     x[i, j]   at  3 i + 1 j
    x^T  shape (3, 2)  stride (1, 3)     x^T[j, i] at  1 j + 3 i        the same place

permute does it for any order of dimensions, and transpose is a permute that exchanges two. Both
take as long for a million numbers as for six: a tuple of strides is all that is made.

A result that shares its storage with the tensor it came from is called a view. The trap is that a
write is seen in all views, since there is only one storage. In place writes count on that (step
67c), and `y = x.transpose(0, 1)` is not a copy to be kept for later.

PyTorch: the same methods. Views of one tensor have the same x.untyped_storage().data_ptr().

New: Tensor.transpose, Tensor.permute.
Try: leave the strides as they are in permute. At which place is y[2, 1] then, and what does Python
say?
"""

import math


def row_order(shape):
    """The strides of a tensor whose elements lie in memory in the order in which one reads them."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


class Tensor:
    """A tensor in plain Python.

    memory: a flat list of numbers. shape, steps, start: how to read it.
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


def as_strided(input, size, stride, storage_offset):
    """Another tensor on the storage of `input`."""
    out = Tensor()
    out.memory, out.shape = input.memory, tuple(size)
    out.steps, out.start = tuple(stride), storage_offset
    return out


def tensor(data):
    """A new tensor with the numbers of nested lists."""
    shape, level = [], [data]
    while isinstance(level[0], list):
        shape.append(len(level[0]))
        level = [item for row in level for item in row]
    out = Tensor()
    out.memory, out.shape, out.steps, out.start = level, tuple(shape), row_order(shape), 0
    return out


def place(x, *index):
    """Where in the storage the element of x with this index lies."""
    return x.storage_offset() + sum(i * step for i, step in zip(index, x.stride(), strict=True))


if __name__ == "__main__":
    x = tensor([[1, 2, 3], [4, 5, 6]])
    y = x.transpose(0, 1)
    print(tuple(y.shape), y.stride(), y.tolist())  # -> (3, 2) (1, 3) [[1, 4], [2, 5], [3, 6]]
    print("x[1, 2] at", place(x, 1, 2), "y[2, 1] at", place(y, 2, 1))
    # -> x[1, 2] at 5 y[2, 1] at 5

    image = tensor([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]])  # 2 rows, 2 columns, r g b
    colours = image.permute(2, 0, 1)
    print(tuple(colours.shape), "from", image.stride(), "to", colours.stride())
    # -> (3, 2, 2) from (6, 3, 1) to (1, 6, 3)
    print("the red ones:", colours.tolist()[0])  # -> the red ones: [[1, 4], [7, 10]]

    x.storage()[5] = 60
    print("a write is seen in both:", x.tolist(), y.tolist())
    # -> a write is seen in both: [[1, 2, 3], [4, 5, 60]] [[1, 4], [2, 5], [3, 60]]
    print("one storage:", y.memory is x.memory)  # here: a list in Python
    # -> one storage: True
