"""Step 77a: Samplers: which items, in which order

The loader of step 47b knows two orders: one after the other, or shuffled. I want others: to keep
two of the items for tests, without a second data set, or to begin with those that the network gets
wrong. For each wish the loader would get an option, and an `if` in its loop.

But all that it needs is numbers of items. So an object of its own gives them, a *sampler*: it has a
length, and a loop over it gives the numbers.

    sampler             numbers                batches of 3
    Sequential(8)       0 1 2 3 4 5 6 7        [0 1 2] [3 4 5] [6 7]
    Random(8)           5 2 7 0 1 6 3 4        [5 2 7] [0 1 6] [3 4]
    Subset([1, 4, 6])   4 6 1                  [4 6 1]
    a list [3, 3, 3]    3 3 3                  [3 3 3]

shuffle=True now only says which sampler the loader makes for itself. A list is a sampler too. The
loader takes batch_size numbers at a time: islice gives fewer at the end, then an empty list, which
ends the `while`.

RandomSampler begins a stream of its own with a seed from the common one, as the loader of step 47b
did. SubsetRandomSampler, in PyTorch and here, shuffles with the common stream.

The trap: a sampler that is a generator or an iterator is empty after one pass. Each pass calls
iter() on it anew, and a list, or an object with __iter__, begins again.

PyTorch: torch.utils.data.SequentialSampler, RandomSampler, SubsetRandomSampler, and
DataLoader(sampler=...), which is refused together with shuffle=True.

Changed: DataLoader. New: SequentialSampler, RandomSampler, SubsetRandomSampler.
Try: give the loader iter([3, 1, 2]) as its sampler, and go through it twice.
"""

import itertools

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.tensor import tensor
from tinytorch.ops.random import Generator, manual_seed, randint, randperm
from tinytorch.utils.data.collate import default_collate
from tinytorch.utils.data.dataset import TensorDataset


class SequentialSampler:
    """0, 1, 2, ..."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler:
    """All numbers in random order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        generator = Generator().manual_seed(randint(1 << 62, ()).item())
        return iter(randperm(len(self.data_source), generator=generator).tolist())

    def __len__(self):
        return len(self.data_source)


class SubsetRandomSampler:
    """The numbers `indices`, in random order."""

    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter([self.indices[i] for i in randperm(len(self.indices)).tolist()])

    def __len__(self):
        return len(self.indices)


class DataLoader:
    """Batches of a data set: for x, t in DataLoader(dataset, 32, shuffle=True).

    sampler: gives the numbers of the items, instead of shuffle.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, drop_last=False):
        if sampler is None:
            sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.dataset, self.batch_size = dataset, batch_size
        self.sampler, self.drop_last = sampler, drop_last

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        randint(1 << 62, ())  # a seed for workers, as in PyTorch; there are none here
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield default_collate([self.dataset[i] for i in batch])


if __name__ == "__main__":
    data = TensorDataset(tensor([0, 1, 2, 3, 4, 5, 6, 7]))

    def batches(loader):
        return len(loader), [numbers.tolist() for (numbers,) in loader]

    print(*batches(DataLoader(data, 3)))  # -> 3 [[0, 1, 2], [3, 4, 5], [6, 7]]
    print(*batches(DataLoader(data, 3, sampler=[3, 3, 3, 0], drop_last=True)))  # -> 1 [[3, 3, 3]]

    # shuffle=True is a RandomSampler.
    for options in ({"shuffle": True}, {"sampler": RandomSampler(data)}):
        manual_seed(0)
        loader = DataLoader(data, 3, **options)
        print(*batches(loader), *batches(loader))
        # -> 3 [[5, 3, 6], [7, 2, 4], [1, 0]] 3 [[6, 5, 4], [2, 7, 0], [3, 1]]
        # -> 3 [[5, 3, 6], [7, 2, 4], [1, 0]] 3 [[6, 5, 4], [2, 7, 0], [3, 1]]

    # Two loaders of one data set, which share no item.
    order = randperm(8).tolist()
    train, test = DataLoader(data, 3, sampler=SubsetRandomSampler(order[:6])), order[6:]
    print(*batches(train), *batches(train), "kept:", test)
    # -> 2 [[4, 7, 2], [5, 1, 6]] 2 [[1, 5, 4], [6, 2, 7]] kept: [0, 3]

    losses = [0.1, 0.9, 0.3, 0.2, 0.0, 0.5, 0.4, 0.8]
    hard_first = sorted(range(8), key=lambda i: -losses[i])
    print(batches(DataLoader(data, 4, sampler=hard_first))[1])  # -> [[1, 7, 5, 6], [2, 3, 0, 4]]
