"""Step 77e: A loader with workers

The workers of step 77d have to be asked, waited for and ended by hand. The program should say
DataLoader(..., num_workers=2), and get the same batches in the same order as without.

So they take turns: task i goes to worker i mod n, by a cycle of the workers that zip ends with the
batches (hence strict=False). Answers are taken in the order of the tasks:

    tasks     0   1   2   3   4   5          worker 1: 0 2 4     worker 2: 1 3 5
    answers   0   1   2   3   4   5          a worker that is ahead waits at its pipe

Each worker has two tasks, so that it never waits for us: while we use batch 0, it makes batch 2.
`owed` is the queue of workers that have an answer for us; when it is full, the oldest one answers
before the next task is given. The `finally` ends the workers, also if the loop is left by break,
where Python closes the generator. It takes their last answers first: a worker that cannot get rid
of a large batch would never end.

The trap: random numbers. A fork copies the random stream too, so that all workers would draw the
same, and move all images alike. So each worker begins a stream of its own: a seed that the loader
draws in each pass (step 47b did not use it), plus the worker's number. What a data set draws for
its items is then not the same as without workers.

Workers pay where items take long to make: to start a process costs some ten milliseconds.

PyTorch: the same turns, two tasks for each worker (prefetch_factor), and the same seeds.

Changed: work, Worker.__init__, DataLoader.
Try: leave out manual_seed in work. What do the two workers draw?
In depth: loader01 to loader37, processes01 to processes05.
"""

import collections
import itertools
import multiprocessing

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.ops.random import Generator, manual_seed, rand, randint, randperm
from tinytorch.ops.sampling import multinomial
from tinytorch.utils.data.collate import default_collate
from tinytorch.utils.data.dataset import Dataset


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


def work(connection, dataset, collate_fn, seed):
    """A worker's life: it gets lists of numbers, and sends back batches. None ends it."""
    manual_seed(seed)
    for numbers in iter(connection.recv, None):
        connection.send(collate_fn([dataset[i] for i in numbers]))


class Worker:
    """One process, and our end of the pipe to it."""

    def __init__(self, dataset, collate_fn, seed):
        self.connection, theirs = multiprocessing.Pipe()
        args = theirs, dataset, collate_fn, seed
        self.process = multiprocessing.Process(target=work, args=args, daemon=True)
        self.process.start()  # daemon: it is ended with our program
        theirs.close()

    def ask(self, numbers):
        """Give it a task, and do not wait."""
        self.connection.send(numbers)

    def answer(self):
        """The batch of the oldest task: wait for it."""
        return self.connection.recv()

    def end(self):
        """No more tasks: wait until the process has ended."""
        self.ask(None)
        self.process.join()
        self.connection.close()


class DataLoader:
    """Batches of a data set: for x, t in DataLoader(dataset, 32, shuffle=True).

    sampler: gives the numbers of the items, instead of shuffle.
    batch_sampler: gives lists of them, instead of batch_size, shuffle, sampler and drop_last.
    num_workers: processes that make batches, two ahead each; 0: made here.
    collate_fn: makes a batch from a list of items.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        drop_last=False,
    ):
        if sampler is None:  # not used beside a batch_sampler
            sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.dataset, self.collate_fn = dataset, collate_fn or default_collate
        self.num_workers = num_workers
        self.batch_sampler = batch_sampler or BatchSampler(sampler, batch_size, drop_last)

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        seed = randint(1 << 62, ()).item()  # for workers; drawn without them too
        if not self.num_workers:
            for numbers in self.batch_sampler:
                yield self.collate_fn([self.dataset[i] for i in numbers])
            return
        ours = self.dataset, self.collate_fn
        workers = [Worker(*ours, seed + number) for number in range(self.num_workers)]
        owed = collections.deque()  # the workers that have a task, the oldest task first
        try:
            for worker, numbers in zip(itertools.cycle(workers), self.batch_sampler, strict=False):
                if len(owed) == 2 * self.num_workers:
                    yield owed.popleft().answer()
                worker.ask(numbers)
                owed.append(worker)
            while owed:
                yield owed.popleft().answer()
        finally:
            for worker in owed:
                worker.answer()
            for worker in workers:
                worker.end()


class Mandelbrot(Dataset):
    """Row i of a picture: for each point after how many rounds of z = z^2 + c it has left."""

    zoom = 1.0

    def __len__(self):
        return 20

    def __getitem__(self, index):
        row = []
        for x in range(60):
            c, z, rounds = complex(x / 24 - 2, index / 9 - 1.05) / self.zoom, 0j, 0
            while abs(z) < 2 and rounds < 5000:
                z, rounds = z * z + c, rounds + 1
            row.append(rounds)
        return tensor(row), index


def draw(batch):
    """A random number for each item."""
    return rand(len(batch))


if __name__ == "__main__":

    def epoch(num_workers):
        """The numbers of the rows of each batch, and the sum of all rows."""
        manual_seed(0)
        loader = DataLoader(Mandelbrot(), 3, shuffle=True, num_workers=num_workers)
        order, total = [], 0
        for rows, numbers in loader:
            order.append(numbers.tolist())
            total += rows.sum().item()
        return order, total

    alone, shared = epoch(0), epoch(2)
    print(shared[0][:4], shared[1])  # -> [[11, 8, 2], [13, 3, 1], [14, 19, 5], [10, 7, 12]] 1617661
    print("the same order and sum:", alone == shared)  # -> the same order and sum: True

    # Four batches of two items: the workers draw in turn, each from its own stream.
    manual_seed(0)
    for workers in (2, 0):
        loader = DataLoader(range(8), 2, num_workers=workers, collate_fn=draw)
        drawn = [round(number, 4) for numbers in loader for number in numbers.tolist()]
        print(workers, drawn, len(set(drawn)))
        # -> 2 [0.7894, 0.0423, 0.1189, 0.7808, 0.5628, 0.1816, 0.7807, 0.7504] 8
        # -> 0 [0.3078, 0.041, 0.0752, 0.0165, 0.1753, 0.8133, 0.6494, 0.9128] 8

    # A loop that is left ends its workers.
    for _, numbers in DataLoader(Mandelbrot(), 3, num_workers=2):
        print(numbers.tolist())  # -> [0, 1, 2]
        break
    print(multiprocessing.active_children())  # -> []
