"""Step random04: Normal numbers from uniform ones

The weights of a network are usually drawn from a normal distribution: small values often, large
ones rarely. A generator computes uniform numbers; how do they become normal?

Box and Muller (1958) turn two uniform numbers into two normal ones. Take a point of the plane in
polar coordinates. The direction is uniform, 2 pi v. The distance is sqrt(-2 log(1 - u)): with this
distribution, both coordinates are normal, and independent of each other.

    x = distance * cos(direction)       y = distance * sin(direction)

[0, 1) leaves out 1 for a reason: log(1 - u) must not be infinite. (log1p(-u) is log(1 - u), and
exact for small u as well.)

rand and randn differ only in the distribution. So random_function makes both, as a table makes
operations in step elementwise01. The default generator serves both: a call of randn moves the
numbers of rand on.

The trap in tests: the mean of n numbers is off by about std / sqrt(n), by chance. So a test of
random numbers cannot ask for equality. It sets a seed and allows 5 such deviations, which chance
exceeds less than once in a million tries.

PyTorch: torch.randn.

Changed: rand. New: box_muller, HostSource.normal, random_function, randn.
Try: write xp.log(u) in place of xp.log1p(-u). What are the far ends then?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, as_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import new_leaf


def box_muller(xp: Any, u: Any, v: Any) -> Any:
    """Pairs of normal numbers from pairs of uniform ones in [0, 1): (n,) and (n,) to (2, n).

    Box and Muller (1958): a random direction, and a random distance from 0. The log gives the
    distance the one distribution for which the two coordinates are independent and normal.
    """
    distance, direction = xp.sqrt(-2 * xp.log1p(-u)), 2 * math.pi * v
    return distance * xp.stack([xp.cos(direction), xp.sin(direction)])


class HostSource:
    """Random numbers from NumPy, copied to a device. A backend may have a better source."""

    def __init__(self, device: Device):
        self.device = device

    def seed(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Numbers from [0, 1)."""
        return self.to_device(np.asarray(self.rng.random(shape, dtype=dtype)))

    def normal(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Normal numbers, of mean 0 and standard deviation 1."""
        n = math.prod(shape)
        pairs = box_muller(np, *self.rng.random((2, (n + 1) // 2), dtype=dtype))
        return self.to_device(pairs.reshape(-1)[:n].reshape(shape))

    def to_device(self, array: np.ndarray) -> Any:
        return self.device.backend.from_numpy(array, self.device.index)


class Generator:
    """A stream of random numbers on one device. The same seed gives the same stream."""

    default: dict[Device, "Generator"] = {}
    first_seed = 2147483647  # of generators without a seed of their own

    def __init__(self, device: Any = "cpu"):
        self.device = as_device(device)
        self.source = (self.device.backend.random_source or HostSource)(self.device)
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


def generator_for(device: Device, generator: Generator | None) -> Generator:
    """The given generator, or the default one of the device.

    Raises:
        RuntimeError: the generator belongs to another device.
    """
    if generator is None:
        if device not in Generator.default:
            Generator.default[device] = Generator(device)
        return Generator.default[device]
    if generator.device is not device:
        raise RuntimeError(
            f"Expected a '{device}' device type for generator but found '{generator.device}'"
        )
    return generator


def manual_seed(seed: int) -> Generator:
    """Seeds the generators of all devices, also those created later. Returns the CPU's."""
    Generator.first_seed = int(seed)
    for generator in Generator.default.values():
        generator.manual_seed(seed)
    return generator_for(as_device("cpu"), None).manual_seed(seed)


def seed() -> int:
    """Seeds all generators with an unpredictable number, and returns it."""
    return manual_seed(Generator().seed()).initial_seed()


def initial_seed() -> int:
    """The seed of the CPU's default generator."""
    return generator_for(as_device("cpu"), None).initial_seed()


def random_function(name: str, distribution: str) -> Callable[..., Tensor]:
    """Makes rand and randn, which differ only in the distribution."""

    def create(*shape: Any, generator=None, dtype=None, device=None, requires_grad=False) -> Tensor:
        device = as_device(device)
        dtype = numpy_dtype(Defaults.dtype if dtype is None else as_dtype(dtype))
        source = generator_for(device, generator).source
        array = getattr(source, distribution)(as_shape(shape), dtype)
        return new_leaf(array, device, requires_grad)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = (
        f"""{name}(2, 3): a tensor of that shape with random numbers, {distribution}."""
    )
    return create


rand = random_function("rand", "uniform")


randn = random_function("randn", "normal")


if __name__ == "__main__":
    manual_seed(0)
    n = 100_000
    for name, x, mean, variance in (
        ("rand", rand(n), 1 / 2, 1 / 12),
        ("randn", randn(n), 0.0, 1.0),
    ):
        values = x.numpy().astype(np.float64)
        near = abs(values.mean() - mean) < 5 * (variance / n) ** 0.5
        print(f"{name:5} mean as it should be: {near}, variance {values.var():.2f}")
        # -> rand  mean as it should be: True, variance 0.08
        # -> randn mean as it should be: True, variance 1.00

    # How many of them lie within 1, 2, 3 standard deviations? By the book 68.3, 95.4, 99.7 percent.
    values = randn(n).numpy()
    for k, by_the_book in ((1, 68.27), (2, 95.45), (3, 99.73)):
        percent = 100 * (abs(values) < k).mean()
        print(f"within {k}: {abs(percent - by_the_book) < 0.8}")
    # -> within 1: True
    # -> within 2: True
    # -> within 3: True

    # The two numbers of a pair say nothing about each other.
    u, v = rand(n).numpy(), rand(n).numpy()
    x, y = box_muller(np, u, v)
    print(f"correlated: {abs(np.corrcoef(x, y)[0, 1]) > 5 / n**0.5}")  # -> correlated: False
    print(f"their squares: {abs(np.corrcoef(x**2, y**2)[0, 1]) > 5 / n**0.5}")
    # -> their squares: False
    print("the far ends:", box_muller(np, np.array([0.0, 1 - 2.0**-24]), np.zeros(2))[0].round(2))
    # -> the far ends: [0.   5.77]
    print(rand.__name__, randn.__name__, "|", randn.__doc__)
    # -> rand randn | randn(2, 3): a tensor of that shape with random numbers, normal.
    print(randn(2, 3).shape, randn(3).shape)  # -> tinytorch.Size([2, 3]) tinytorch.Size([3])
