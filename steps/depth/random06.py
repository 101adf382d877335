"""Step random06: The state of a generator in the package's dress

Step 48c saved the state of the random numbers with a training, so that it goes on bit for bit. Here
it is a tensor of bytes, which any file can hold. The source decides what the bytes mean: here they
are NumPy's state as JSON text. So a state works only with the kind of source that made it, and
cannot be exchanged with PyTorch.

    state = g.get_state()      a, b, c drawn      g.set_state(state)      a, b, c again

The trap: the seed is not in the state. After set_state, initial_seed still returns the last seed
that was set.

PyTorch: Generator.get_state, torch.get_rng_state. Checkpointing (step checkpoint03) uses it to
repeat a dropout.

Changed: HostSource, Generator.
Try: g.set_state(tensor([1, 2, 3], dtype=uint8)). Which module raises the error?
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, as_dtype, numpy_dtype, uint8
from tinytorch.core.tensor import Tensor, tensor
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
    g = Generator().manual_seed(0)
    rand(1000, generator=g)
    bookmark = g.get_state()
    page = rand(5, generator=g).tolist()
    print("going on:", rand(5, generator=g).tolist() == page)  # -> going on: False
    g.set_state(bookmark)
    print("from the bookmark:", rand(5, generator=g).tolist() == page)  # -> from the bookmark: True
    print(bookmark.dtype, "starts with", bookmark.numpy()[:26].tobytes())
    # -> tinytorch.uint8 starts with b'{"bit_generator": "PCG64",'

    # Another generator takes the place, not the seed.
    other = Generator()
    other.set_state(bookmark)
    print(rand(5, generator=other).tolist() == page, other.initial_seed())  # -> True 2147483647
    try:
        g.set_state(tensor([1, 2, 3]))
    except TypeError as error:
        print("TypeError:", error)
        # -> TypeError: expected a tinytorch.uint8 tensor as the state of a generator
