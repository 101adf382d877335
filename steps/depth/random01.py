"""Step random01: A generator in the package's dress

Step 39c built the generator: a seed, and a stream that it decides. Here it gets what a package
needs: a source for each library (HostSource is NumPy's), types, sizes, and a seed that can be asked
for. A seed is an integer of 64 bits, and negative ones count from 2^64 down, as in PyTorch.
`seed()` takes an unpredictable one from the operating system, and returns it, so that a program can
record it and use it again.

The trap: one extra number shifts everything that comes after. A new layer in front changes the
initial values of all layers behind it, under the same seed.

The numbers are not those of PyTorch for the same seed; PyTorch's own CPU and GPU differ, too.
Names, types and rules are PyTorch's.

Changed: Generator, rand. New: HostSource.
Try: call rand(1, generator=g) just before the line that prints "again". Which answers change?
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


def rand(*shape: Any, generator: Generator, dtype: Any = None, requires_grad=False) -> Tensor:
    """rand(2, 3): a tensor of that shape with random numbers from [0, 1)."""
    dtype = numpy_dtype(Defaults.dtype if dtype is None else as_dtype(dtype))
    array = generator.source.uniform(as_shape(shape), dtype)
    return new_leaf(array, as_device("cpu"), requires_grad)


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.dtype import float64

    print("without a seed:", np.random.default_rng().random(2).round(3))  # -> ...

    # The same seed, the same numbers; without it the stream goes on.
    g = Generator().manual_seed(7)
    first, second = rand(3, generator=g).tolist(), rand(3, generator=g).tolist()
    g.manual_seed(7)
    print("again:", rand(3, generator=g).tolist() == first, rand(3, generator=g).tolist() == second)
    # -> again: True True
    print("another part of the stream:", first == second)  # -> another part of the stream: False

    # One number more in front, and everything behind it is different.
    g.manual_seed(7)
    rand(1, generator=g)
    print("shifted:", rand(3, generator=g).tolist() == first)  # -> shifted: False

    x = rand(2, 3, generator=g, dtype=float64, requires_grad=True)
    print(x.shape, x.dtype, x.requires_grad)  # -> tinytorch.Size([2, 3]) tinytorch.float64 True
    values = rand(100_000, generator=g).numpy()
    print("from 0 to 1:", 0 <= values.min() < 0.001, 0.999 < values.max() < 1)
    # -> from 0 to 1: True True
    print(f"mean {values.mean():.2f}, variance {values.var():.3f}, 1 / 12 is {1 / 12:.3f}")
    # -> mean 0.50, variance 0.083, 1 / 12 is 0.083

    print(g.initial_seed(), Generator().initial_seed())  # -> 7 2147483647
    noted = g.seed()
    print("unpredictable, noted:", g.initial_seed() == noted)  # -> unpredictable, noted: True
    g.manual_seed(-1)
    last = rand(2, generator=g).tolist()
    print("-1 is 2^64 - 1:", rand(2, generator=g.manual_seed(2**64 - 1)).tolist() == last)
    # -> -1 is 2^64 - 1: True
    try:
        g.manual_seed(2**64)
    except ValueError as error:
        print("ValueError:", error)
        # -> ValueError: Overflow: the seed 18446744073709551616 does not fit 64 bits
