"""Step 77c: Batches of your own: batch samplers and collate_fn

Sentences have different lengths, and a batch is one tensor: default_collate raises an error. So the
short ones are filled up with zeros to the longest one of their batch. With batches at random, 69 %
of what a network then reads are zeros. Batches of sentences of like length would have few. But a
sampler gives single numbers, and does not know where a batch ends.

So two more parts of the loader can be replaced:

    batch_sampler    gives lists of numbers: which items make a batch together
    collate_fn       makes the batch from the list of items

BatchSampler is the usual one: it is the loop of step 77a, and the loader makes it from its options.

The demo sorts the sentences by length, cuts them into batches, and shuffles the batches, not the
sentences. 8 % zeros are left, and an epoch is a little more than a third of the work.

The trap: a batch of short sentences is not a random sample, and steps in a row may be alike. That
is why the batches are shuffled, and why one sorts only within pieces of a large data set.

PyTorch: the same two arguments.

Changed: DataLoader. New: BatchSampler.
Try: batches of 8, and of 128. Why does the share of zeros change in both orders?
In depth: dataset01 to dataset09.
"""

import gzip
import itertools
import pathlib

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import zeros
from tinytorch.ops.random import Generator, manual_seed, randint, randperm
from tinytorch.ops.sampling import multinomial
from tinytorch.utils.data.collate import default_collate


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


class WeightedRandomSampler:
    """num_samples numbers, i with a probability in proportion to weights[i]: one weight for each
    sample. With replacement a number may come several times."""

    def __init__(self, weights, num_samples, replacement=True):
        self.weights = tensor(weights, dtype=float64)  # for sums of many weights
        self.num_samples, self.replacement = num_samples, replacement

    def __iter__(self):
        return iter(multinomial(self.weights, self.num_samples, self.replacement).tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler:
    """Lists of batch_size numbers from a sampler; drop_last leaves out a shorter last one."""

    def __init__(self, sampler, batch_size, drop_last):
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class DataLoader:
    """Batches of a data set: for x, t in DataLoader(dataset, 32, shuffle=True).

    sampler: gives the numbers of the items, instead of shuffle.
    batch_sampler: gives lists of them, instead of batch_size, shuffle, sampler and drop_last.
    collate_fn: makes a batch from a list of items.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        collate_fn=None,
        drop_last=False,
    ):
        if sampler is None:  # not used beside a batch_sampler
            sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.dataset, self.collate_fn = dataset, collate_fn or default_collate
        self.batch_sampler = batch_sampler or BatchSampler(sampler, batch_size, drop_last)

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        randint(1 << 62, ())  # a seed for workers, as in PyTorch; there are none here
        for numbers in self.batch_sampler:
            yield self.collate_fn([self.dataset[i] for i in numbers])


if __name__ == "__main__":
    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/lessons.txt.gz"
    text = gzip.decompress(packed.read_bytes()).decode()
    sentences = [sentence for sentence in text.replace("\n", " ").split(". ")][:1000]
    data = [tensor([ord(letter) for letter in sentence]) for sentence in sentences if sentence]

    def fill_up(batch):
        """The sentences [batch, the longest one], with zeros behind."""
        rows = zeros(len(batch), max([len(item) for item in batch]))
        for row, item in zip(rows, batch, strict=True):
            row[: len(item)] = item
        return rows

    def share_of_zeros(loader):
        return sum((x == 0).sum().item() for x in loader) / sum(x.numel() for x in loader)

    by_length = sorted(range(len(data)), key=lambda i: len(data[i]))
    batches = list(BatchSampler(by_length, 32, drop_last=False))

    manual_seed(0)
    loader = DataLoader(data, 32, shuffle=True, collate_fn=fill_up)
    print(f"{len(loader)} batches at random: {share_of_zeros(loader):.0%} zeros")
    # -> 32 batches at random: 69% zeros
    shuffled = [batches[i] for i in randperm(len(batches)).tolist()]  # a list: once for all passes
    loader = DataLoader(data, batch_sampler=shuffled, collate_fn=fill_up)
    print(f"{len(loader)} batches by length: {share_of_zeros(loader):.0%} zeros")
    # -> 32 batches by length: 8% zeros
