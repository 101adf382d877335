"""Step 69d: view and reshape

A network wants an image of [8, 8] as a row of 64. The elements lie in this order already: only
shape and stride change. But for a transpose of [3, 2] no stride gives a row of 6. Its storage is
1 2 3 4 5 6, and one would have to step +3, -2, +3, ...

Which shapes are possible? First join what lies in memory like one dimension: two neighbours whose
strides fit, stride[0] = size[1] * stride[1]. That gives blocks, each with one step:

    shape (2, 3, 4), stride (12, 4, 1)      one block:   24 elements, step 1
    shape (4, 2, 3), stride (1, 12, 4)      two blocks:   4 elements, step 1;  6 elements, step 4

Then cut the blocks up again, from the last one to the first. A new dimension has to end where a
block ends or fit into what is left of it. If it reaches over the end, no stride can do it.

view() makes the new strides or refuses. reshape() makes a view where that is possible, and copies
where it is not. So the trap is in reshape: whether a write into the result is seen in x depends on
x's strides.

PyTorch: the same names, the same messages. Ours takes no -1, and no size of 0.

New: Tensor.view, Tensor.reshape, view_stride.
Try: leave out `if left % n: return None`. y.view(6) is not refused. How far does the demo get?
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
    x = tensor([[1, 2, 3], [4, 5, 6]])
    y = x.transpose(0, 1)
    row = x.view(6)
    print(row.tolist(), row.stride())  # -> [1, 2, 3, 4, 5, 6] (1,)
    print(x.view(3, 2).tolist(), "is not", y.tolist())
    # -> [[1, 2], [3, 4], [5, 6]] is not [[1, 4], [2, 5], [3, 6]]
    try:
        x.view(3)
    except RuntimeError as error:
        print(error)  # -> shape '[3]' is invalid for input of size 6
    try:
        y.view(6)
    except RuntimeError as error:
        print(str(error)[:30])  # -> view size is not compatible wi
    flat = y.reshape(6)
    print("reshape:", flat.tolist())  # -> reshape: [1, 4, 2, 5, 3, 6]

    x.storage()[0] = 100
    print("a view:", row.tolist()[0], "a copy:", flat.tolist()[0])  # -> a view: 100 a copy: 1
    print("a view too:", x.reshape(1, 3, 2).reshape(3, 2).tolist())
    # -> a view too: [[100, 2], [3, 4], [5, 6]]

    # Two blocks: each may be cut up, and nothing may reach over both.
    z = tensor([[[0] * 4] * 3] * 2).permute(2, 0, 1)
    print(tuple(z.shape), z.stride())  # -> (4, 2, 3) (1, 12, 4)
    print(z.view(2, 2, 6).stride(), z.view(4, 3, 2).stride())  # -> (2, 1, 4) (1, 8, 4)
