"""The DataLoader: batches of a dataset, in any order, made here or by other processes."""

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.cuda.backend import is_available
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed
from tinytorch.utils.data.worker import Workers


def itself(sample: Any) -> Any:
    """The collate_fn of a loader without batches."""
    return sample


def pinned(value: Any) -> Any:
    """The tensors of a batch in pinned memory, from where a GPU fetches them by itself."""
    if isinstance(value, Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: pinned(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [pinned(each) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def fetcher(dataset: Any, collate: Callable, batched: bool, drop_last: bool) -> Callable:
    """A function from a task to a batch. A task is a list of numbers, or one number without
    batches; of a stream it is how many items to take: StopIteration where there are none."""
    if isinstance(dataset, IterableDataset):
        stream = iter(dataset)

        def take(count: int) -> Any:
            if not batched:
                return collate(next(stream))
            samples = list(itertools.islice(stream, count))
            if not samples or (drop_last and len(samples) < count):
                raise StopIteration
            return collate(samples)

        return take
    if not batched:
        return lambda number: collate(dataset[number])
    if collate is default_collate:
        return lambda numbers: collated(dataset, numbers)
    return lambda numbers: collate([dataset[number] for number in numbers])


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        num_workers: processes that make batches, `prefetch_factor` (2) each ahead; 0: made here.
        collate_fn: makes a batch from a list of items.
        pin_memory: puts batches where a GPU fetches them faster; without a GPU, nothing.
        drop_last: leaves out a last batch that is shorter.
        timeout: seconds after which a worker that does not answer is an error; 0: never.
        worker_init_fn: called with the number of the worker in each, before it begins.
        generator: draws the order and the workers' seeds.
        persistent_workers: keeps the processes from one epoch to the next.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context.
    Raises ValueError for options that exclude each other.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ):
        stream = isinstance(dataset, IterableDataset)
        whole = (batch_size, shuffle or False, sampler, drop_last)
        for wrong, reason in (
            (num_workers < 0, "num_workers option should be non-negative"),
            (timeout < 0, "timeout option should be non-negative"),
            (not num_workers and prefetch_factor is not None, "prefetch_factor needs num_workers"),
            (prefetch_factor is not None and prefetch_factor < 1, "prefetch_factor must be >= 1"),
            (not num_workers and persistent_workers, "persistent_workers needs num_workers > 0"),
            (not num_workers and multiprocessing_context, "a context needs num_workers > 0"),
            (stream and shuffle, "an IterableDataset cannot be shuffled: it has its own order"),
            (stream and (sampler or batch_sampler), "an IterableDataset takes no sampler"),
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
        if sampler is None and not stream:
            shuffled = partial(RandomSampler, generator=generator)
            sampler = (shuffled if shuffle else SequentialSampler)(dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None and not stream:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        self.batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.batched else itself)
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        self.pin_memory, self.generator = pin_memory, generator
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        self.workers: Workers | None = None

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset, here or in a worker."""
        return partial(
            fetcher, collate=self.collate_fn, batched=self.batched, drop_last=self.drop_last
        )

    def tasks(self) -> Iterator:
        """What is to be fetched, in order: endless for a stream."""
        if isinstance(self.dataset, IterableDataset):
            return itertools.repeat(self.batch_size)
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator:
        batches = self.made_by_workers() if self.num_workers else self.made_here()
        return map(pinned, batches) if self.pin_memory and is_available() else batches

    def made_here(self) -> Iterator:
        fetch = self.make_fetch()(self.dataset)
        for task in self.tasks():
            try:
                batch = fetch(task)
            except StopIteration:
                return
            yield batch

    def made_by_workers(self) -> Iterator:
        workers = self.workers
        if workers is None:
            workers = Workers(self, new_seed(self.generator))
            if self.persistent_workers:
                self.workers = workers
                weakref.finalize(self, workers.close)
        else:
            workers.restart()
        try:
            yield from workers.batches(self.tasks(), self.prefetch_factor)
        finally:  # also when the loop was left: Python closes the generator then
            if not self.persistent_workers:
                workers.close()

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
