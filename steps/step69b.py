"""Step 69b: Transposed, and contiguous again

In step 69a the strides of the transpose were written by hand: (3, 1) became (1, 3). That is the
whole rule. Rows and columns change their names, so shape and stride change places, and the storage
stays as it is. permute does it for any order of dimensions; transpose exchanges two of them.

    x   1 2 3     y = x^T   1 4     y[j, i] is at 1 j + 3 i, like x[i, j]
        4 5 6               2 5     one reads       1 4 2 5 3 6
                            3 6     the storage is  1 2 3 4 5 6

A result that shares its storage with the tensor it came from is called a view, and a write is seen
in all views. In place writes count on that (step 67c).

But a loop in C, a file and a network card want elements one after the other. A tensor is contiguous
if one reads its elements in the order of memory, without gaps: then its strides are those of row
order. contiguous() gives the tensor itself if it is, and a copy if not. clone() always copies.

For the copy, `places` follows the formula of step 69a, one dimension after the other: each place
found so far becomes as many places as the dimension has indices, one stride apart.

The trap: contiguous() may be the tensor itself. To write into the result and not into x, use
clone().

PyTorch: the same methods. Its clone() keeps the order of the strides if there are no gaps:
x.T.clone() still has the stride (1, 3), and only contiguous() turns it into rows. Ours writes rows.

Changed: tensor. New: Tensor.transpose, permute, is_contiguous, contiguous, clone; from_list,
places.
Try: exchange the two `for` in places. Which line is wrong, and in which order does it read?
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


if __name__ == "__main__":
    x = tensor([[1, 2, 3], [4, 5, 6]])
    y = x.transpose(0, 1)
    print(y.tolist(), y.stride(), place(x, 1, 2) == place(y, 2, 1))
    # -> [[1, 4], [2, 5], [3, 6]] (1, 3) True
    image = tensor([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]])  # 2 rows, 2 columns, r g b
    print("the red ones:", image.permute(2, 0, 1).tolist()[0])  # -> the red ones: [[1, 4], [7, 10]]

    print(x.is_contiguous(), y.is_contiguous())  # -> True False
    z = y.contiguous()
    print("one reads", places(y), "and the copy is", list(z.storage()), z.stride())
    # -> one reads [0, 3, 1, 4, 2, 5] and the copy is [1, 4, 2, 5, 3, 6] (2, 1)
    same, copy = x.contiguous(), x.clone()
    x.storage()[0] = 100
    print("views:", same.tolist()[0], y.tolist()[0], "copies:", copy.tolist()[0], z.tolist()[0])
    # -> views: [100, 2, 3] [100, 4] copies: [1, 2, 3] [1, 4]

    corner = as_strided(x, (2, 2), (3, 1), 1)  # gaps in its memory
    print(corner.is_contiguous(), list(corner.contiguous().storage()))  # -> False [2, 3, 5, 6]
    print(tensor([[1], [2]]).transpose(0, 1).is_contiguous())  # -> True
