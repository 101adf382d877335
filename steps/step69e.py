"""Step 69e: expand: a stride of 0

A bias of 3 numbers is added to 1,000 rows. Are 1,000 copies of it made? With a stride of 0 none is:
the index goes up, and the place stays the same.

    b        shape (3,)        stride (1,)       b[j]      at j
    expand   shape (1000, 3)   stride (0, 1)     b[i, j]   at 0 i + 1 j

So 3,000 elements lie in a storage of 3. expand gives stride 0 to each dimension that is new or has
size 1. Any other size has to fit, and there are at least as many sizes as dimensions. This is how
broadcasting reads its operands (step 36a): both are expanded to the common shape, and the loop then
knows nothing of it.

The gradient of expand sums, since one number was read many times.

The trap: a write into one row of the result is a write into all rows. PyTorch refuses it for
x.expand(...).add_(1), since the result would depend on the order of the writes, and asks for a
clone().

PyTorch: the same method. It takes -1 for a size that stays; ours does not. A copy for each is
x.repeat(1000, 1).

New: Tensor.expand.
Try: `1 if old == 1` in the last list. Which row of `many` is the first that the storage does not
have?
In depth: create01 to create07, shape01 to shape07.
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

    def view(self, *size):
        """The elements in another shape, on the same storage, or RuntimeError."""
        stride = view_stride(self.shape, self.steps, size)
        if stride is None:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            )
        return as_strided(self, size, stride, self.start)

    def reshape(self, *shape):
        """The elements in another shape: a view where that is possible, else a copy."""
        if view_stride(self.shape, self.steps, shape) is None:
            return self.clone().view(*shape)
        return self.view(*shape)

    def expand(self, *sizes):
        """Dimensions of size 1, and new ones in front, repeated to `sizes`: their stride is 0."""
        gap = len(sizes) - len(self.shape)
        if gap < 0:
            raise RuntimeError(f"expand: the number of sizes {sizes} is below that of {self.shape}")
        shape, steps = (1,) * gap + self.shape, (0,) * gap + self.steps
        for old, size in zip(shape, sizes, strict=True):
            if old not in (1, size):
                raise RuntimeError(f"The expanded size {sizes} does not fit {self.shape}")
        stride = [0 if old == 1 else step for old, step in zip(shape, steps, strict=True)]
        return as_strided(self, sizes, stride, self.start)


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


def view_stride(shape, stride, size):
    """The strides that read a tensor in another shape, or None where no strides can."""
    if math.prod(size) != math.prod(shape):
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {math.prod(shape)}")
    blocks = []  # [elements, step between them]: dimensions that lie in memory like one
    for n, step in zip(shape, stride, strict=True):
        if n == 1:
            continue
        if blocks and blocks[-1][1] == n * step:
            blocks[-1] = [blocks[-1][0] * n, step]
        else:
            blocks.append([n, step])
    found, left, step = [], 1, 1  # left: the elements of the last block that are not yet used
    for n in reversed(size):
        if left == 1 and n > 1:
            left, step = blocks.pop()
        if left % n:
            return None
        found = [step, *found]
        left, step = left // n, step * n
    return tuple(found)


if __name__ == "__main__":
    b = tensor([1, 2, 3])
    many = b.expand(1000, 3)
    print(tuple(many.shape), many.stride(), len(many.storage()))  # -> (1000, 3) (0, 1) 3
    print("last row:", many.tolist()[-1])  # -> last row: [1, 2, 3]
    print(many.is_contiguous(), len(many.contiguous().storage()))  # -> False 3000

    column = b.view(3, 1).expand(3, 2)
    print("a column:", column.tolist(), column.stride())
    # -> a column: [[1, 1], [2, 2], [3, 3]] (1, 0)

    # A table of sums, by two expanded views.
    rows, columns = b.view(3, 1).expand(3, 3).tolist(), b.expand(3, 3).tolist()
    print([[i + j for i, j in zip(*pair, strict=True)] for pair in zip(rows, columns, strict=True)])
    # -> [[2, 3, 4], [3, 4, 5], [4, 5, 6]]

    b.storage()[0] = 100
    print("one storage:", many.tolist()[7])  # -> one storage: [100, 2, 3]
    try:
        b.expand(2, 4)
    except RuntimeError as error:
        print(str(error)[:17])  # -> The expanded size
    try:
        many.expand(3)
    except RuntimeError as error:
        print("the number of sizes" in str(error))  # -> True
