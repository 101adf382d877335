"""Step loader16: Labelled datasets: Digits and Spiral

Nearly all data of the next steps are inputs with labels. As a TensorDataset, the digits are bare:
there is no place for a change of each image, such as a rotation, which differs from epoch to epoch.
So a small class has the interface of torchvision's data sets:

    item i  =  (transform(data[i]), target_transform(int(targets[i])))

`transform` is any function of an image. Without one, a whole batch is an index operation (step
dataset07); with one, each item has to be made. The target of an item is a plain int, as in
torchvision, and a batch has a tensor of them.

Digits are the package's own 1797, of which the last 360 are the test. Spiral is computed: arms that
wind around each other, which no straight line separates. Its test set has the same arms and other
random numbers.

The demo shows what steps dataset02 to loader15 were for: three epochs, each in its own order, in a
loop without indices and stacks.

The trap: transform acts on each item, each time. What is the same each time, such as a division by
the mean, is cheaper if it is done once, before.

New: Labelled, Digits, Spiral.
Try: a transform that mirrors an image. Does it help digits?
"""

import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, as_tensor, from_numpy
from tinytorch.cuda.backend import is_available
from tinytorch.datasets.digits import load_digits
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def pin(value: Any) -> Any:
    """A tensor in pinned memory, from where a GPU fetches it by itself."""
    return value.pin_memory() if hasattr(value, "pin_memory") else value


def fetcher(collate: Callable, batched: bool, drop_last: bool, dataset: Any) -> Callable:
    """A function from a task to a batch. A task is a list of numbers, or one number without
    batches; a stream only looks how many there are. StopIteration where it has no more items."""
    if isinstance(dataset, IterableDataset):
        stream = iter(dataset)

        def take(task: Any) -> Any:
            if not batched:
                return collate(next(stream))
            samples = list(itertools.islice(stream, len(task)))
            if not samples or (drop_last and len(samples) < len(task)):
                raise StopIteration
            return collate(samples)

        return take
    if not batched:
        return lambda number: collate(dataset[number])
    if collate is default_collate:
        return lambda numbers: collated(dataset, numbers)
    return lambda numbers: collate(items(dataset, numbers))


class BatchIterator:
    """What iter(loader) gives: the batches of one epoch, each made when it is asked for."""

    def __init__(self, loader: "DataLoader"):
        self.sampler, self.tasks = loader.index_sampler, iter(loader.index_sampler)
        self.pinned = loader.pin_memory and is_available()
        if loader.pin_memory and not self.pinned:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )
        self.fetch = loader.make_fetch()(loader.dataset)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.delivered(self.fetch(next(self.tasks)))

    def delivered(self, batch: Any) -> Any:
        return walk(pin, batch) if self.pinned else batch

    def __len__(self) -> int:
        return len(self.sampler)


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        collate_fn: makes a batch from a list of items.
        pin_memory: puts batches where a GPU fetches them faster; warns where there is no GPU.
        drop_last: leaves out a last batch that is shorter.
        generator: draws the order.
        pin_memory_device: has no effect, as in PyTorch, which has given it up.
    Raises ValueError for options that exclude each other.
    """

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable | None = None,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        generator: Generator | None = None,
        *,
        pin_memory_device: str = "",
    ):
        stream = isinstance(dataset, IterableDataset)
        own_order = sampler is not None or batch_sampler is not None
        whole = (batch_size, bool(shuffle), sampler, drop_last)
        for wrong, reason in (
            (stream and shuffle, "an IterableDataset cannot be shuffled: it has its own order"),
            (stream and own_order, "an IterableDataset takes no sampler"),
            (sampler is not None and shuffle, "sampler option is mutually exclusive with shuffle"),
            (
                batch_sampler is not None and whole != (1, False, None, False),
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last",
            ),
            (batch_size is None and drop_last, "batch_size=None has no last batch to drop"),
        ):
            if wrong:
                raise ValueError(f"DataLoader: {reason}")
        if stream:
            sampler = itertools.repeat(None)  # endless: only the stream knows its end
        elif sampler is None:
            shuffled = partial(RandomSampler, generator=generator)
            sampler = (shuffled if shuffle else SequentialSampler)(dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        usual = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn or usual
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.generator = generator

    @property
    def index_sampler(self) -> Iterable:
        """What gives the tasks: lists of numbers, or where nothing is batched numbers."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset."""
        return partial(fetcher, self.collate_fn, self.batch_sampler is not None, self.drop_last)

    def __iter__(self) -> Iterator:
        return BatchIterator(self)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.index_sampler)


class Labelled(Dataset):
    """Item i is (data[i], targets[i]), each through its transform if it has one."""

    def __init__(
        self, data: Tensor, targets: Tensor, transform: Any = None, target_transform: Any = None
    ):
        self.data, self.targets = data, targets
        self.transform, self.target_transform = transform, target_transform

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        item, target = self.data[index], int(self.targets[index])
        if self.transform is not None:
            item = self.transform(item)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return item, target

    def __getbatch__(self, indices: Sequence[int]) -> Any:
        if self.transform is None and self.target_transform is None:
            chosen = as_tensor(np.array(indices, np.int64))
            return [self.data[chosen], self.targets[chosen]]
        return default_collate(items(self, indices))

    def __len__(self) -> int:
        return len(self.targets)


class Digits(Labelled):
    """The package's digits: images [8, 8], float32 from 0 to 1. The last 360 are the test set."""

    def __init__(self, train: bool = True, transform: Any = None, target_transform: Any = None):
        part = slice(None, -360) if train else slice(-360, None)
        images, labels = load_digits()
        super().__init__(images[part], labels[part], transform, target_transform)


class Spiral(Labelled):
    """Points [2], float32, on arms that wind around each other: no straight line parts them.

    There are `classes` arms with `per_class` points each, which lie beside their arm by a normal
    number of size 0.02. The test set (train=False) has the same arms and other numbers.
    """

    def __init__(self, train: bool = True, classes: int = 3, per_class: int = 100, **more: Any):
        labels = np.repeat(np.arange(classes), per_class)
        radius = np.tile(np.linspace(0.05, 1, per_class), classes)
        angle = 2 * math.pi * (labels / classes + 0.75 * radius)
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        points += 0.02 * np.random.default_rng(int(train)).standard_normal(points.shape)
        super().__init__(from_numpy(points.astype(np.float32)), from_numpy(labels), **more)


if __name__ == "__main__":
    import time

    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.flatten import Flatten
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam

    # Three epochs over the digits, each in an order of its own.
    manual_seed(0)
    train, test = Digits(), Digits(train=False)
    net = Sequential(Flatten(), Linear(64, 64), ReLU(), Linear(64, 10))
    optimizer = Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        for images, labels in DataLoader(train, 64, shuffle=True):
            loss = cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    right = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, 100))
    print(len(losses), "batches, loss", f"{losses[0]:.1f}, then {losses[-1]:.1f}")  # -> ...
    print("more than 80 % are right:", right > 0.8 * len(test))  # -> more than 80 % are right: True

    # A change of each image, and of each target: the top half of the digit, and is it even?
    even = Digits(transform=lambda image: image[:4], target_transform=lambda label: label % 2 == 0)
    image, target = even[0]
    print(image.shape, target, type(Digits()[0][1]).__name__)
    # -> tinytorch.Size([4, 8]) True int
    images, targets = next(iter(DataLoader(even, 32)))
    print(images.shape, targets.dtype.name)  # -> tinytorch.Size([32, 4, 8]) bool

    # A batch with one index, and one of items.
    for name, dataset in (("plain", train), ("transformed", even)):
        start = time.perf_counter()
        for _ in DataLoader(dataset, 64):
            pass
        print(f"{name:12} {(time.perf_counter() - start) * 1e3:.1f} ms")  # -> ...

    # A spiral of three arms: 100 points each, the first ones near the middle.
    points, arms = next(iter(DataLoader(Spiral(), 300)))
    print(points.shape, arms.tolist().count(2))  # -> tinytorch.Size([300, 2]) 100
    print(f"{points[0].norm().item():.1f} to {points[99].norm().item():.1f}")  # -> 0.1 to 1.0
    other = Spiral(train=False).data
    print("another spiral for the test:", (points - other).abs().max().item() < 0.2)
    # -> another spiral for the test: True
