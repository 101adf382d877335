"""Step 70b: Tensors of indices are copies

A batch of samples 2, 0 and 2 is not a view: 2, 0, 2 is no start with a step. So x[tensor([2, 0,
2])] takes each of these rows and copies it. The result has the shape of the index, and then what
the dimensions behind it have:

    x [3, 2],  index [5]      x[index]   [5, 2]
    x [3, 2],  index [4, 5]   x[index]   [4, 5, 2]      an embedding (step 55b) is this

Two tensors of indices are read together, element by element, like two columns of coordinates: they
choose x[i_1, j_1], x[i_2, j_2], ... And they are broadcast first, by expand of step 69e. `pick`
takes each of these views (step 70a) and lists its places.

The trap is that two lists do not make a block. x[rows, columns] with two and two indices has two
elements, where x[1:3, 0:2] has four. For the block one index stands as a column: rows [2, 1] and
columns [2] broadcast to [2, 2].

PyTorch calls this advanced indexing, and takes lists too. Integers, slices and tensors may be
mixed in one key; ours wants tensors for the first dimensions.

Changed: Tensor.__getitem__. New: pick, broadcast_shapes.
Try: rows.expand(2, 2) in place of rows.view(2, 1) for the block. Which elements does it choose?

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
    shape = broadcast_shapes(*[each.shape for each in indices])
    columns = [each.expand(*shape) for each in indices]
    columns = [[each.memory[i] for i in places(each)] for each in columns]
    found = [place for index in zip(*columns, strict=True) for place in places(x[index])]
    return found, (*shape, *x.shape[len(indices) :])


if __name__ == "__main__":
    x = tensor([[1, 2], [3, 4], [5, 6]])
    batch = x[tensor([2, 0, 2])]
    print(batch.tolist())  # -> [[5, 6], [1, 2], [5, 6]]
    print(tuple(x[tensor([[0, 1], [2, 2], [1, 0], [0, 0]])].shape))  # -> (4, 2, 2)

    rows, columns = tensor([0, 2]), tensor([0, 1])
    print("pairs:", x[rows, columns].tolist())  # -> pairs: [1, 6]
    print("a block:", x[rows.view(2, 1), columns].tolist())  # -> a block: [[1, 2], [5, 6]]
    print(broadcast_shapes(rows.view(2, 1).shape, columns.shape) == (2, 2))  # -> True

    # A copy does not see what is written later, and a view does.
    view = x[2]
    x.storage()[4] = 50
    print("view:", view.tolist(), "copy:", batch.tolist()[0])  # -> view: [50, 6] copy: [5, 6]
