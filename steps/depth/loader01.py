"""Step loader01: Samplers in the package's dress

Step 77a built samplers: objects that give numbers of items. Here they get a base class, for the
name and for a clear error. Any object with __iter__ can be a sampler, also a list; __len__ is
needed only for the length of an epoch.

Each `iter(sampler)` shuffles anew. The demo trains with digits that are sorted by class, and with
shuffled ones: 19 % and 85 % are read.

The trap: a test needs no shuffling. In an order that is always the same, one can find the item that
went wrong.

(torch.utils.data has the same samplers. After the same manual_seed, their order is another one.)

Changed: SequentialSampler, RandomSampler. New: Sampler. Moved: step dataset09, to
tinytorch/utils/data/dataset.py.
Try: give both epochs of the shuffled training the same list of numbers. How much does it matter?
"""

import importlib
from collections.abc import Iterator, Sized
from types import GenericAlias

from tinytorch.ops.random import randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Sampler:
    """Base of all samplers: a subclass writes `__iter__`, which gives numbers of items."""

    __class_getitem__ = classmethod(GenericAlias)

    def __iter__(self) -> Iterator:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A shuffled dataset: each number once, in an order that is another one each time."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        yield from randperm(len(self.data_source)).tolist()

    def __len__(self) -> int:
        return len(self.data_source)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.sgd import SGD
    from tinytorch.utils.data.dataset import TensorDataset, collated

    manual_seed(0)
    print(list(SequentialSampler(range(4))))  # -> [0, 1, 2, 3]
    shuffler = RandomSampler(range(100))
    first, second = list(shuffler), list(shuffler)
    print(len(shuffler), sorted(first) == sorted(second) == list(range(100)))  # -> 100 True
    print("each epoch has its own order:", first != second)
    # -> each epoch has its own order: True

    # The digits, sorted as files often are: 1437 to train with, and 360 for a test.
    images, labels = load_digits()
    by_class = labels[:1437].argsort()
    digits = TensorDataset(images[by_class].reshape(-1, 64), labels[by_class])

    def train(sampler):
        """The labels that the network has given after two epochs, and how many are right."""
        manual_seed(0)
        net = Linear(64, 10)
        optimizer, classes = SGD(net.parameters(), lr=0.5), []
        for _ in range(2):
            numbers = list(sampler)
            for start in range(0, len(sampler), 64):
                x, y = collated(digits, numbers[start : start + 64])
                loss = cross_entropy(net(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                classes.append(len(set(y.tolist())))
        said = net(images[1437:].reshape(-1, 64)).argmax(1)
        right = (said == labels[1437:]).sum().item() / 360
        print(
            f"{sum(classes) / len(classes):.0f} classes in a batch, {right:.0%} are right, "
            f"{(said == 9).sum().item()} times it said 9"
        )
        return right

    sorted_right = train(SequentialSampler(digits))  # -> 1 classes in a batch, ...
    shuffled_right = train(RandomSampler(digits))  # -> 10 classes in a batch, ...
    print(sorted_right < 0.4, shuffled_right > 0.75)  # -> True True

    # A sampler without numbers says so.
    try:
        iter(Sampler())
    except NotImplementedError as error:
        print(error, Sampler[int])  # -> Sampler has no __iter__ __main__.Sampler[int]
