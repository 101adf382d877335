"""Step 70d: Writing through indices

x[1] = 0 writes into the storage. Python gives it a method of its own, __setitem__, so it does not
matter whether x[1] would be a view or a copy. What is needed is known already: the places of the
chosen elements, of a view by `places`, of tensors of indices by `pick`. The value is expanded to
the chosen shape, and a loop writes number by number:

    x[:, 1] = 0        x[mask] = 0        x[tensor([0, 2])] = row

Two traps. With two pairs of brackets the first one is read: x[index][0] = 5 writes into the copy
that x[index] has made, and x does not change. x[1][0] = 5 works, because x[1] is a view.

And an index may appear twice. Then the last write wins here, and with several threads any of them.
count[index] = count[index] + 1 reads all the old values first, and adds 1 once for each place, not
for each index. To count, the writes have to add up: index_add in PyTorch, np.add.at in NumPy.

PyTorch: the same; index_put_ is the function, and accumulate=True adds. With gradients, an
assignment is the write of step 67c.

New: Tensor.__setitem__.
Try: x[x > 3][0] = 0, and print x. Which of the two brackets reads, and which writes?
In depth: indexing01 to indexing15.
"""

import itertools
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

    def __getitem__(self, key):
        """A view for integers and slices, a copy for tensors of indices."""
        key = key if isinstance(key, tuple) else (key,)
        if isinstance(key[0], Tensor):
            chosen, shape = pick(self, key)
            return from_list([self.memory[i] for i in chosen], shape)
        if len(key) > len(self.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(self.shape)}")
        key += (slice(None),) * (len(self.shape) - len(key))
        size, stride, offset = [], [], self.start
        for dim, (part, n, step) in enumerate(zip(key, self.shape, self.steps, strict=True)):
            if isinstance(part, slice):
                chosen = range(n)[part]  # Python works out where a slice begins and ends
                if chosen.step < 0:
                    raise ValueError("step must be greater than zero")
                size.append(len(chosen))
                stride.append(chosen.step * step)
                offset += chosen.start * step
            elif -n <= part < n:
                offset += part % n * step  # -1 % n is n - 1
            else:
                raise IndexError(f"index {part} is out of bounds for dimension {dim} with size {n}")
        return as_strided(self, size, stride, offset)

    def unbind(self, dim):
        """The parts along a dimension, each without it: views."""
        before = (slice(None),) * dim
        return tuple(self[(*before, i)] for i in range(self.shape[dim]))

    def __gt__(self, number):
        """Where the elements are larger: a mask."""
        return from_list([self.memory[i] > number for i in places(self)], self.shape)

    def __setitem__(self, key, value):
        """Write `value`, which is expanded to the chosen part, into the storage."""
        key = key if isinstance(key, tuple) else (key,)
        if isinstance(key[0], Tensor):
            chosen, shape = pick(self, key)
        else:
            part = self[key]
            chosen, shape = places(part), part.shape
        value = (value if isinstance(value, Tensor) else tensor(value)).expand(*shape)
        numbers = [value.memory[i] for i in places(value)]  # read first: it may be a view of self
        for i, number in zip(chosen, numbers, strict=True):
            self.memory[i] = number


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


def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes are expanded to."""
    ndim = max(map(len, shapes))
    rows = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*rows, strict=True))


def pick(x, indices):
    """The places of the elements that tensors of indices choose, and the shape of the result."""
    if indices[0].memory and isinstance(indices[0].memory[0], bool):  # a mask
        indices = nonzero(indices[0]).unbind(1)
    shape = broadcast_shapes(*[each.shape for each in indices])
    columns = [each.expand(*shape) for each in indices]
    columns = [[each.memory[i] for i in places(each)] for each in columns]
    found = [place for index in zip(*columns, strict=True) for place in places(x[index])]
    return found, (*shape, *x.shape[len(indices) :])


def nonzero(input):
    """The indices of the elements that are not 0 or False: one row for each."""
    indices = itertools.product(*map(range, input.shape))  # (0, 0), (0, 1), ...
    found = [i for i, place in zip(indices, places(input), strict=True) if input.memory[place]]
    return from_list(
        [number for index in found for number in index], (len(found), len(input.shape))
    )


if __name__ == "__main__":
    x = tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    x[:, 1] = 0
    x[2] = tensor([10, 20, 30])
    print(x.tolist())  # -> [[1, 0, 3], [4, 0, 6], [10, 20, 30]]
    x[x > 9] = 9
    x[tensor([0, 1]), tensor([0, 2])] = tensor([-1, -2])
    print(x.tolist())  # -> [[-1, 0, 3], [4, 0, -2], [9, 9, 9]]

    # A view is written through, a copy is not.
    x[1][0] = 5
    x[tensor([0])][0] = 7
    print(x.tolist()[:2])  # -> [[-1, 0, 3], [5, 0, -2]]

    # An index that appears twice: two writes, one place.
    y = tensor([0, 0, 0])
    y[tensor([1, 1, 2])] = tensor([10, 20, 30])
    print("the last one wins:", y.tolist())  # -> the last one wins: [0, 20, 30]
