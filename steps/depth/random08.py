"""Step random08: rand_like, randn_like and randint_like

Noise is added to a tensor: x + 0.1 * randn(x.shape). With x in float64, or on another device, this
noise is still float32 on the default device: the sum fails, or it draws in the wrong type.

rand_like and its kin take shape, type and device from x, as zeros_like does. like_function (step
create03) makes the first two. An option that is given overrides the default:

    randn_like(x)                    randn(x.shape, dtype=x.dtype, device=x.device)
    randn_like(x, dtype=float32)     randn(x.shape, dtype=float32, device=x.device)

The limits of randint_like stand where the shape does in randint, so it is written out.

rand and randn now accept `size=`, a shape as one argument, as randint does.

The trap: requires_grad is not taken from x. Noise is data, and gets no gradient.

Changed: random_function (size). New: rand_like, randn_like, randint_like.
Try: write `**options` first in the dict of randint_like, and ask for dtype=float32.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, DType, as_dtype, int64, numpy_dtype, uint8
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.creation import like_function, new_leaf


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
        array = getattr(source, distribution)(as_shape(shape if size is None else (size,)), dtype)
        return new_leaf(array, device, requires_grad)

    create.__name__ = create.__qualname__ = name
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
    array = source.integers(int(low), int(high), as_shape((size,)), dtype)
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
    """The integers 0 to n - 1 in random order."""
    n = as_integer(n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    device = as_device(device)
    array = generator_for(device, generator).source.permutation(n)
    return wrap(array.astype(numpy_dtype(as_dtype(dtype))), device)


if __name__ == "__main__":
    from tinytorch.core.dtype import float32, float64
    from tinytorch.ops import arithmetic  # noqa: F401  (the operators)

    manual_seed(0)
    x = tensor([[1.0, 2.0, 3.0]], dtype=float64, requires_grad=True)
    print("randn:", randn(x.shape).dtype, "randn_like:", randn_like(x).dtype)
    # -> randn: tinytorch.float32 randn_like: tinytorch.float64
    print((x + 0.1 * randn_like(x)).shape, rand_like(x, dtype=float32).dtype)
    # -> tinytorch.Size([1, 3]) tinytorch.float32
    print(randint_like(x.long(), 2, 4).dtype, rand(size=(2, 2)).shape, randint_like.__name__)
    # -> tinytorch.int64 tinytorch.Size([2, 2]) randint_like
    print(rand_like(x).requires_grad, rand_like(x, requires_grad=True).requires_grad)
    # -> False True
