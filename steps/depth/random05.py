"""Step random05: Random numbers in half precision

rand(2, dtype=float16) fails: NumPy draws in float32 and float64 only. To draw in float32 and round
is the obvious way, and wrong: 0.9999 in float16 is 1, and rand promises numbers below 1. Code that
relies on it, log(1 - u) for example, becomes infinite about once in 4,000 draws.

The numbers of float16 just below 1 are 1/2048 apart, those of bfloat16 1/256. So half precision
uses multiples of 1/256, from 0 to 255/256. Each of them is a number of both types, and nothing
needs rounding. It costs some of the numbers near 0: there are 256 different values in all.

Normal numbers are not bounded. They are drawn in float32 and then rounded.

width() says in which of NumPy's two types to draw. Integers and booleans are refused: a uniform
number in [0, 1) would always be 0.

(PyTorch has the same rule with as many bits as the type's mantissa has: 11 for float16, 8 for
bfloat16.)

Changed: HostSource.
Try: draw float16 in float32, and round: `.astype(dtype)`. What is the largest of the demo then?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, as_dtype, int64, numpy_dtype
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
        width = self.width(dtype)
        if dtype.itemsize == 2:  # float16, bfloat16: multiples of 1/256 are never rounded up to 1
            return self.to_device(np.asarray(self.rng.integers(0, 256, shape) / 256).astype(dtype))
        return self.to_device(np.asarray(self.rng.random(shape, dtype=width)))

    def normal(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Normal numbers, of mean 0 and standard deviation 1."""
        n = math.prod(shape)
        pairs = box_muller(np, *self.rng.random((2, (n + 1) // 2), dtype=self.width(dtype)))
        return self.to_device(pairs.reshape(-1)[:n].reshape(shape).astype(dtype, copy=False))

    def width(self, dtype: np.dtype) -> type:
        """NumPy draws in two widths only; float16 and bfloat16 come from float32."""
        if dtype.kind in "biu":
            raise NotImplementedError(f"random numbers of type {dtype}: ask for a float type")
        return np.float64 if dtype == np.float64 else np.float32

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
    from tinytorch.core.dtype import float16

    print("0.9999 as float16:", np.float16(0.9999))  # -> 0.9999 as float16: 1.0
    manual_seed(0)
    n = 100_000
    rounded = rand(n).numpy().astype(np.float16)
    print("rounded, that are 1:", (rounded == 1).sum() > 0)  # -> rounded, that are 1: True
    half = rand(n, dtype=float16)
    print(half.dtype, "the largest of", n, "halves:", half.numpy().max())
    # -> tinytorch.float16 the largest of 100000 halves: 0.996
    print("different values:", len(np.unique(half.numpy())))  # -> different values: 256
    values = half.numpy().astype(np.float64)
    print(f"mean {values.mean():.2f}, variance {values.var():.2f}")  # -> mean 0.50, variance 0.08
    values = randn(n, dtype=float16).numpy().astype(np.float64)
    print(f"normal: mean {abs(values.mean()):.1f}, variance {values.var():.1f}")
    # -> normal: mean 0.0, variance 1.0
    try:
        rand(2, dtype=int64)
    except NotImplementedError as error:
        print(error)  # -> random numbers of type int64: ask for a float type
