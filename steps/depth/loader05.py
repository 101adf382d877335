"""Step loader05: fork_rng: random numbers without side effects

Step loader04 keeps the sampler's numbers apart from all others. For the rest of a program, there is
one generator. A plot after each epoch that draws a few random digits changes the weights that are
drawn next, the dropout, and the order of the next epoch. With the plot, the program is another one,
and a mistake that was there without it may be gone.

A generator is a row of numbers and a place in it: its state. So what has been drawn can be undone:

    state = get_rng_state()          where we are
    ...                              draw what you like
    set_rng_state(state)             back to where we were

`with fork_rng():` does it for the generators of all devices, also if the block ends with an error.
It restores the chosen seed too, so that initial_seed() returns the same number as before.

The trap: numbers drawn inside and after the block are the same. Two blocks, one after the other,
draw the same "random" digits. Seed them inside, or give them a generator.

(torch.random.fork_rng is the same, and in PyTorch it holds for the CPU and the GPUs.)

New: get_rng_state, set_rng_state, fork_rng.
Try: draw in two fork_rng blocks, one after the other.
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from types import GenericAlias
from typing import Any

from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import Generator, generator_for, randint, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator."""
    return generator_for(cpu, None).get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Sets the state of the CPU's default generator."""
    generator_for(cpu, None).set_state(new_state)


@contextmanager
def fork_rng(devices: Sequence[int] | None = None, enabled: bool = True) -> Iterator[None]:
    """`with fork_rng():` what is drawn or seeded inside changes nothing for the program outside.

    It holds for the CPU and for all other devices, or for the GPUs with the numbers `devices`.
    """
    generator_for(cpu, None)
    before = {
        generator: (generator.get_state(), generator.chosen_seed)
        for device, generator in Generator.default.items()
        if enabled and (devices is None or device is cpu or device.index in devices)
    }
    try:
        yield
    finally:
        for generator, (state, chosen) in before.items():
            generator.set_state(state)
            generator.chosen_seed = chosen


def new_seed(generator: Generator | None) -> int:
    """A seed from `generator`, or from the default one."""
    return int(randint(1 << 62, (), generator=generator).item())


def check_positive(name: str, value: Any) -> None:
    """Raises ValueError unless it is a positive integer. A bool is not one."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def check_bool(name: str, value: Any, error: type[Exception] = ValueError) -> None:
    if not isinstance(value, bool):
        raise error(f"{name} should be a boolean value, but got {name}={value}")


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
    """A shuffled dataset; with replacement, each number is drawn from all of them.

    num_samples, the length of the dataset if not given, may be larger than any memory: the numbers
    are drawn while they are asked for.
    Raises:
        TypeError, ValueError: for an invalid option.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        check_bool("replacement", replacement, TypeError)
        check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, generator = len(self.data_source), self.generator
        if generator is None:
            generator = Generator().manual_seed(new_seed(None))
        size = 1024 if self.replacement else n
        rounds, rest = divmod(self.num_samples, size)
        for count in itertools.chain(itertools.repeat(size, rounds), [rest] if rest else []):
            if self.replacement:
                yield from randint(n, (count,), generator=generator).tolist()
            else:
                yield from randperm(n, generator=generator)[:count].tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The numbers `indices`, shuffled."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler(Sampler):
    """Lists of batch_size numbers from another sampler; drop_last leaves out a shorter last one."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        check_positive("batch_size", batch_size)
        check_bool("drop_last", drop_last)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


if __name__ == "__main__":
    from tinytorch.ops.random import initial_seed, manual_seed, rand

    # A program with and without a plot. All its later numbers differ.
    def program(plot):
        manual_seed(3)
        plot()
        return rand(3).tolist(), list(RandomSampler(range(5)))

    def draw():
        rand(7)

    def draw_apart():
        with fork_rng():
            manual_seed(99)
            rand(7)

    without = program(lambda: None)
    print(program(draw) == without, program(draw_apart) == without)  # -> False True
    print("seed:", initial_seed())  # -> seed: 3

    # Also where the block ends with an error.
    def fail():
        try:
            with fork_rng():
                rand(7)
                raise ValueError
        except ValueError:
            print("an error")

    print(program(fail) == without)
    # -> an error
    # -> True

    # By hand: where we are, and back.
    state = get_rng_state()
    first = rand(3).tolist()
    set_rng_state(state)
    print(rand(3).tolist() == first)  # -> True

    # Only the CPU's generator is put back, and none.
    manual_seed(3)
    first = rand(2).tolist()
    for options in ({"devices": []}, {"enabled": False}):
        manual_seed(3)
        with fork_rng(**options):
            rand(7)
        print(options, rand(2).tolist() == first)
    # -> {'devices': []} True
    # -> {'enabled': False} False
