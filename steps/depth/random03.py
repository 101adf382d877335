"""Step random03: A generator for each device

The numbers of step random02 are made in the host's memory. A tensor on a GPU needs them there:
drawing them on the host and copying them makes the GPU wait. And two devices cannot share a stream:
which of them draws first would depend on their speed. So every device has a default generator of
its own.

    manual_seed(0)      seeds all of them, also those that do not exist yet (first_seed)
    generator=          a generator belongs to one device, and another device refuses it

HostSource draws by NumPy and sends the numbers to its device. A backend may have a source that
draws on the device (Backend.random_source of step device04). The demo registers a toy of this kind,
and step philox06 a real one.

The trap: a seed fixes the numbers, not their use. With two devices, or other shapes, the same seed
gives another network.

PyTorch: torch.Generator(device). torch.default_generator is that of the CPU.

Changed: HostSource, Generator, manual_seed, seed, initial_seed, rand. New: generator_for, in place
of default_generator.
Try: seed only the generators that exist, without first_seed. Which promise fails?
"""

import math
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import Defaults, as_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import new_leaf


class HostSource:
    """Random numbers from NumPy, copied to a device. A backend may have a better source."""

    def __init__(self, device: Device):
        self.device = device

    def seed(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Numbers from [0, 1)."""
        return self.to_device(np.asarray(self.rng.random(shape, dtype=dtype)))

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


def rand(
    *shape: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad=False,
) -> Tensor:
    """rand(2, 3): a tensor of that shape with random numbers from [0, 1)."""
    device = as_device(device)
    dtype = numpy_dtype(Defaults.dtype if dtype is None else as_dtype(dtype))
    array = generator_for(device, generator).source.uniform(as_shape(shape), dtype)
    return new_leaf(array, device, requires_grad)


if __name__ == "__main__":
    from tinytorch.core.device import Backend, register_backend

    # Two more devices in the host's memory; one of them has a source of its own.
    class Far(np.ndarray):
        pass

    class Counting(np.ndarray):
        pass

    class Counter(HostSource):
        def uniform(self, shape, dtype):
            return self.to_device(np.linspace(0, 1, math.prod(shape), False, dtype=dtype))

    for name, array_type, source in (("far", Far, None), ("counting", Counting, Counter)):
        register_backend(
            name,
            Backend(
                np,
                array_type,
                lambda array, index, array_type=array_type: array.view(array_type),
                lambda array: array.view(np.ndarray),
                random_source=source,
            ),
        )
    manual_seed(7)
    x = rand(3, device="far")  # its generator is made here, after the call of manual_seed
    first = rand(3).tolist()
    print(type(x.array).__name__, x.device, x.tolist() == first)  # -> Far far True
    print("streams of their own:", rand(3, device="far").tolist() == first)
    # -> streams of their own: False
    print("its own source:", rand(4, device="counting").tolist())
    # -> its own source: [0.0, 0.25, 0.5, 0.75]
    manual_seed(7)
    print("seeded as well:", rand(3, device="far").tolist() == first)  # -> seeded as well: True
    own = Generator("far").manual_seed(7)
    print("a generator given:", rand(3, device="far", generator=own).tolist() == first)
    # -> a generator given: True
    try:
        rand(3, device="cpu", generator=own)
    except RuntimeError as error:
        print("RuntimeError:", error)
        # -> RuntimeError: Expected a 'cpu' device type for generator but found 'far'

    print(seed() == initial_seed())  # -> True
