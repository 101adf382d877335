"""Step 77d: A process that makes batches

An image has to be read and decoded, and the network waits. In the demo an item is a row of a
picture that Python computes point by point. Threads do not help, since Python runs one at a time.
Another process has a Python of its own, and another core.

A worker is a process with a pipe to us. Its life is a loop: it gets a list of numbers, makes the
batch as the loader does, and sends it back. None ends it.

    here       ask [0 1]   ask [2 3]   answer ..........   answer   ask None
    worker 1        batch 0 1 ..........
    worker 2                    batch 2 3 ..........

`ask` does not wait and `answer` does, so that two workers compute at the same time. iter(f, None)
calls f until it returns None. A fork leaves both ends of the pipe open on both sides; we close our
copy of the worker's end, since with it `answer` would wait for ever if the worker died. Without it,
recv raises EOFError.

What goes over the pipe is bytes: each side pickles what it sends. A task is 20 bytes, a batch of
two rows 1,277; a batch of 32 photographs is 20 MB. (The finished loader puts large arrays into
memory that both processes see.)

The trap: the worker has a copy of the data set, made when it started. The demo changes the zoom
here, and the worker goes on as it was.

Where a process is not a fork (Windows, or set_start_method("spawn")), it imports this file: so the
data set stands above the demo.

New: work, Worker, and for the demo Mandelbrot.
Try: set data.zoom before the workers are made. What do the picture and the two sums become?
"""

import itertools
import multiprocessing
import pickle

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor
from tinytorch.ops.random import Generator, randint, randperm
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


def work(connection, dataset, collate_fn):
    """A worker's life: it gets lists of numbers, and sends back batches. None ends it."""
    for numbers in iter(connection.recv, None):
        connection.send(collate_fn([dataset[i] for i in numbers]))


class Worker:
    """One process, and our end of the pipe to it."""

    def __init__(self, dataset, collate_fn):
        self.connection, theirs = multiprocessing.Pipe()
        args = theirs, dataset, collate_fn
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


if __name__ == "__main__":
    data = Mandelbrot()
    workers = [Worker(data, default_collate) for _ in range(2)]
    batches = list(BatchSampler(SequentialSampler(data), 5, drop_last=False))
    for worker, numbers in zip(workers * 2, batches, strict=True):  # 1, 2, 1, 2
        worker.ask(numbers)
    for worker in workers * 2:
        rows, numbers = worker.answer()
        for row in rows.tolist():
            print("".join(" .:-=+*#%@"[min(9, rounds // 3)] for rounds in row).rstrip())
            # -> ...

    batch = default_collate([data[0], data[1]])
    print(len(pickle.dumps([0, 1])), "bytes there,", len(pickle.dumps(batch)), "bytes back")
    # -> 20 bytes there, 1277 bytes back

    # A copy: the worker does not see what is changed here.
    data.zoom = 4.0
    workers[0].ask([10])
    print(workers[0].answer()[0].sum().item(), data[10][0].sum().item())
    # -> 181098 300000
    for worker in workers:
        worker.end()
    print([worker.process.exitcode for worker in workers])  # -> [0, 0]
