"""Step random11: Random tensors that are too large

randperm(2**63) of step random10 returns an empty tensor: NumPy counts in 64 bits, and this count
wraps around. rand(10**15) raises NumPy's MemoryError, while PyTorch's is a RuntimeError. Both
faults are known from other functions, and so are their cures:

    n does not fit its type        checked_number (step compare08)
    there is not enough memory     allocated (step create02), which translates the error

`allocated` takes the function and its arguments, and calls it, so it stands around each draw. The
bounds of randint pass through as_integer, so that randint(1.5, 3) is refused instead of rounded.

The trap: on Linux, memory that is asked for is often granted and is missing only when it is
written. The size in the demo is beyond what any machine could grant.

Changed: random_function, randint, randperm.
Try: take checked_number away. Which line of the demo changes?
"""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.modes import no_grad
from tinytorch.core.arguments import checked
from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, int64, numpy_dtype, uint8
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.creation import allocated, like_function, new_leaf
from tinytorch.ops.scalar import checked_number


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

    def get_state(self) -> bytes:
        return json.dumps(self.rng.bit_generator.state).encode()

    def set_state(self, state: bytes) -> None:
        self.rng.bit_generator.state = json.loads(state)

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

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Integers from low to high - 1."""
        return self.to_device(self.rng.integers(low, high, shape, dtype=np.int64).astype(dtype))

    def permutation(self, n: int) -> Any:
        return self.to_device(self.rng.permutation(n))

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

    def get_state(self) -> Tensor:
        """The position in the stream, as a uint8 tensor on the CPU."""
        return tensor(np.frombuffer(self.source.get_state(), np.uint8))

    def set_state(self, state: Tensor) -> None:
        """Continues from where `get_state` was called.

        Raises:
            TypeError: the state is not a uint8 tensor.
        """
        if not isinstance(state, Tensor) or state.dtype is not uint8:
            raise TypeError("expected a tinytorch.uint8 tensor as the state of a generator")
        self.source.set_state(state.numpy().tobytes())

    def __copy__(self) -> "Generator":
        return copy.deepcopy(self)  # a shared source would give its numbers to one or the other


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

    def create(
        *shape: Any, size=None, generator=None, dtype=None, device=None, requires_grad=False
    ) -> Tensor:
        device = as_device(device)
        dtype = numpy_dtype(Defaults.dtype if dtype is None else as_dtype(dtype))
        source = generator_for(device, generator).source
        shape = as_shape(shape if size is None else (size,))
        array = allocated(getattr(source, distribution), shape, dtype)
        return new_leaf(array, device, requires_grad)

    create.__name__ = create.__qualname__ = name
    create.__code__ = create.__code__.replace(co_name=name)  # for messages and tracebacks
    create.__doc__ = (
        f"""{name}(2, 3): a tensor of that shape with random numbers, {distribution}."""
    )
    return create


rand = random_function("rand", "uniform")
randn = random_function("randn", "normal")


def check_range(low: int, high: int, dtype: np.dtype) -> None:
    """Checks the limits of random integers.

    Raises:
        RuntimeError: there is no integer from low to high - 1, or `dtype` cannot hold one.
    """
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    least, most = (0, 1) if dtype.kind == "b" else (limits.min, limits.max)
    if not least <= low < high <= most + 1:
        raise RuntimeError(f"random_: no integers from {low} to {high} - 1, or none for {dtype}")


def randint(
    low: int = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType = int64,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers from `low` (0 if not given) to `high` - 1: randint(10, (2, 3)), randint(3, 5, (4,)).

    Raises:
        RuntimeError: low is not below high, or the type cannot hold them.
    """
    if size is None:  # randint(high, size)
        high, size = None, high
    if high is None:
        low, high = 0, low
    device, dtype = as_device(device), numpy_dtype(as_dtype(dtype))
    check_range(low, high, dtype)
    source = generator_for(device, generator).source
    array = allocated(source.integers, as_integer(low), as_integer(high), as_shape((size,)), dtype)
    return new_leaf(array, device, requires_grad)


rand_like, randn_like = map(like_function, (rand, randn))


@checked
def randint_like(input: Tensor, low: int = 0, high: Any = None, **options: Any) -> Tensor:
    """`randint` in the shape, type and on the device of `input`; low may be left out."""
    options = {"dtype": input.dtype, "device": input.device, **options}
    return randint(low, high, input.array.shape, **options)


def randperm(
    n: int, *, generator: Generator | None = None, dtype: DType = int64, device: Any = None
) -> Tensor:
    """The integers 0 to n - 1 in random order.

    Raises:
        RuntimeError: n is negative, or there is not as much memory.
    """
    n = as_integer(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    checked_number(n, int64)
    device = as_device(device)
    array = allocated(generator_for(device, generator).source.permutation, n)
    return wrap(array.astype(numpy_dtype(as_dtype(dtype))), device)


@no_grad()
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **options: Any
) -> Tensor:
    """Normal numbers with the given mean and standard deviation: numbers with a `size`, or tensors
    whose broadcast shape is the shape of the result. The result is a new leaf: no gradient flows
    to the mean.

    Raises:
        RuntimeError: the standard deviation is negative.
    """
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if size is None:
        return randn_like(mean + std, generator=generator).mul_(std).add_(mean)
    return randn(size, generator=generator, **options).mul_(std).add_(mean)


if __name__ == "__main__":
    asks = (
        lambda: randperm(2**63),
        lambda: rand(10**15),
        lambda: randint(9, (10**15,)),
        lambda: randperm(10**15),
    )
    for ask in asks:
        try:
            ask()
        except RuntimeError as error:
            print(str(error).split(":")[0])
    # -> value cannot be converted to tinytorch.int64 without overflow
    # -> can't allocate memory
    # -> can't allocate memory
    # -> can't allocate memory
    try:
        randint(1.5, 3, (2,))
    except TypeError as error:
        print("TypeError:", error)
    # -> TypeError: argument must be int, not float
    print(rand(2).shape, randint(9, (3,)).shape, sorted(randperm(4).tolist()))
    # -> tinytorch.Size([2]) tinytorch.Size([3]) [0, 1, 2, 3]
