"""Step 70a: Integers and slices are views

x[1] is a row, x[:, 1] a column, x[::2] every second row. Does any of them copy? In step 69a a part
of a storage was written by hand, with an offset. Brackets do the same sum for each dimension:

    integer i             offset + i * stride; the dimension goes
    slice start:stop:by   offset + start * stride, by * stride, as many elements as the range has

So each of them is a view. A column costs no more than a row, and a part of a part is a part:
x[1:][:, 1] adds two offsets.

A negative index counts from the end. A Python list also takes a negative step, x[::-1]. Its stride
would be negative, and PyTorch does not allow that. It raises an error, and flip() copies.

The traps. A view of three numbers keeps a storage of millions alive; clone() lets it go. And x[1]
with an index beyond the end must not read the next row, which the formula would do without a word.

PyTorch: the same. x[1, 2] is a tensor without dimensions; item() makes a number of it.

New: Tensor.__getitem__.
Try: leave out `% n`. Which element is x[-1, -1] now? (Python lists take negative places, too.)
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
        """A view: an integer takes its dimension away, a slice keeps a part of it."""
        key = key if isinstance(key, tuple) else (key,)
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


if __name__ == "__main__":
    x = tensor([[1, 2, 3], [4, 5, 6]])
    parts = {
        "x[-1, -1]": x[-1, -1],
        "x[:, 1]": x[:, 1],
        "x[:, ::2]": x[:, ::2],
        "x[1:][:, 1]": x[1:][:, 1],
    }
    for name, part in parts.items():
        print(f"{name:11} offset {part.storage_offset()} stride {part.stride()} {part.tolist()}")
        # -> x[-1, -1]   offset 5 stride () 6
        # -> x[:, 1]     offset 1 stride (3,) [2, 5]
        # -> x[:, ::2]   offset 0 stride (3, 2) [[1, 3], [4, 6]]
        # -> x[1:][:, 1] offset 4 stride (3,) [5]
    x.storage()[4] = 50
    print("a write is seen:", x[1].tolist(), x[:, 1].tolist())
    # -> a write is seen: [4, 50, 6] [2, 50]

    for wrong in ((0, 3), (0, 1, 2), slice(None, None, -1)):
        try:
            print(x[wrong])
        except (IndexError, ValueError) as error:
            print(str(error)[:27])
            # -> index 3 is out of bounds fo
            # -> too many indices for tensor
            # -> step must be greater than z
