"""Step 77b: Rare classes more often: drawing by weight

Of 1,000 images in the demo 8 show a nine. A network that never says nine is wrong in 0.8 % of the
cases, and that is what it learns: it reads none of the nines of the test. More nines would have to
be written and labelled. To show these eight more often costs a line.

A sampler may give a number several times. WeightedRandomSampler draws num_samples numbers, item i
with a probability in proportion to weights[i]:

    P(i) = w_i / (w_0 + w_1 + ... )          w_i = 1 / (how many items have the class of item i)

With these weights each class has the same share of what is drawn. The numbers come from
multinomial; the finished form can put back what it has drawn (replacement=True), so that an item
may come twice.

This has a price: eight nines may be learned by heart, and a pass shows fewer of the other classes.
So the demo prints both: the nines go from 0 to 43 %, the other digits from 93 to 92 %.

The trap: one weight for each *sample*, not for each class. Ten weights for ten classes are no
error: they mean the items 0 to 9, and the loader gives nothing else.

PyTorch: torch.utils.data.WeightedRandomSampler, with replacement=True by default.

New: WeightedRandomSampler.
Try: weights of 1 / sqrt(count). Where do the two shares lie?
In depth: random01 to random11, distribution01 to distribution14.
"""

import itertools
import pathlib

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import Generator, manual_seed, randint, randperm
from tinytorch.ops.sampling import multinomial
from tinytorch.optim.adam import AdamW
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
    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/digits.csv.gz"
    table = np.loadtxt(packed, delimiter=",", dtype=np.float32)
    table, test = table[:1200], table[1200:]
    nines = np.flatnonzero(table[:, 64] == 9)
    table = np.delete(table, nines[8:], axis=0)[:1000]  # eight nines stay
    images, digits = tensor(table[:, :64] / 16), tensor(table[:, 64].astype(np.int64))
    data = TensorDataset(images, digits)
    count = np.bincount(digits.numpy())
    print("how many of each digit:", count.tolist())
    # -> how many of each digit: [110, 111, 109, 113, 109, 113, 111, 109, 107, 8]
    weights = [1 / count[digit].item() for digit in digits.tolist()]

    def shares(sampler):
        """How many of the nines in the test are read, and how many of the other digits."""
        manual_seed(1)
        net = Sequential(Linear(64, 64), ReLU(), Linear(64, 10))
        optimizer = AdamW(net.parameters(), lr=0.003)
        for _ in range(10):
            for x, t in DataLoader(data, 32, sampler=sampler):
                loss = cross_entropy(net(x), t)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        right = net(tensor(test[:, :64] / 16)).argmax(1).numpy() == test[:, 64]
        nine = test[:, 64] == 9
        return f"nines {right[nine].mean():.0%}, others {right[~nine].mean():.0%}"

    print("as they are:", shares(RandomSampler(data)))
    # -> as they are: nines 0%, others 93%
    print("by weight:  ", shares(WeightedRandomSampler(weights, len(data))))
    # -> by weight:   nines 43%, others 92%

    # The trap: ten weights.
    sampler = WeightedRandomSampler([1.0] * 10, 1000)
    print(len(sampler), "numbers, the largest is", max(sampler))
    # -> 1000 numbers, the largest is 9
    print(sorted(WeightedRandomSampler([0.5, 0.0, 1.0, 1.5], 3, replacement=False)))  # -> [0, 2, 3]
