"""Step random02: The default generator in the package's dress

Step 39c has one stream for a whole program, and so has the package. Three functions speak to it:

    manual_seed(0)      starts its stream
    seed()              starts an unpredictable stream, and returns the seed
    initial_seed()      the seed that was set last

The trap is that all parts of a program share this stream. If one of them draws one more number, all
numbers that come after are others (step random01): a new plot that picks ten samples at random
changes the training. Code that must not disturb the rest draws from a generator of its own.

PyTorch: torch.manual_seed, torch.seed, torch.initial_seed, torch.default_generator.

Changed: rand. New: default_generator, manual_seed, seed, initial_seed.
Try: take `generator=own` out of the line `there = ...`, and see which promises fail.
"""

from typing import Any

import numpy as np

from tinytorch.core.device import as_device
from tinytorch.core.dtype import Defaults, as_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import new_leaf


class HostSource:
    """Random numbers from NumPy."""

    def seed(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Numbers from [0, 1)."""
        return np.asarray(self.rng.random(shape, dtype=dtype))


class Generator:
    """A stream of random numbers. The same seed gives the same stream."""

    first_seed = 2147483647  # of generators without a seed of their own

    def __init__(self):
        self.source = HostSource()
        self.manual_seed(Generator.first_seed)

    def manual_seed(self, seed: int) -> "Generator":
        """Starts the stream of `seed`, an integer from -2^63 to 2^64 - 1; negative ones wrap."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"Overflow: the seed {seed} does not fit 64 bits")
        self.chosen_seed = seed
        self.source.seed(seed % (1 << 64))
        return self

    def seed(self) -> int:
        """Starts an unpredictable stream, and returns its seed."""
        self.manual_seed(int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1))
        return self.chosen_seed

    def initial_seed(self) -> int:
        return self.chosen_seed


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator, and returns it."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the default generator with an unpredictable number, and returns it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def rand(
    *shape: Any, generator: Generator | None = None, dtype: Any = None, requires_grad=False
) -> Tensor:
    """rand(2, 3): a tensor of that shape with random numbers from [0, 1)."""
    dtype = numpy_dtype(Defaults.dtype if dtype is None else as_dtype(dtype))
    array = (generator or default_generator).source.uniform(as_shape(shape), dtype)
    return new_leaf(array, as_device("cpu"), requires_grad)


if __name__ == "__main__":
    manual_seed(7)
    first = rand(3).tolist()
    manual_seed(7)
    print("again:", rand(3).tolist() == first)  # -> again: True

    # A generator of its own leaves the default one where it is.
    own = Generator().manual_seed(7)
    manual_seed(1)
    there = rand(3, generator=own).tolist()
    after = rand(2).tolist()
    manual_seed(1)
    print("undisturbed:", rand(2).tolist() == after)  # -> undisturbed: True
    print("its own stream:", there == first)  # -> its own stream: True

    print(initial_seed(), seed() == initial_seed())  # -> 1 True
