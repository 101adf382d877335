"""Step philox06: Random numbers drawn on the GPU

The source draws on the GPU, and nothing uses it there yet. Up to now, rand(1000, device="cuda")
asks NumPy, and sends the numbers over the bus; the demo prints the class of the source.

A backend can name a source of its own, `random_source` (step random03 left room for it). Then each
Generator for such a device makes one, and every function that draws uses it, later ones included.
So `register` is one assignment.

Each device has a default generator of its own, with its own seed and its own place in the stream.
Two consequences, both in PyTorch as well:

- The same seed gives other numbers on a GPU than on the CPU. A program that has to give the same
  result on both draws on the CPU, and sends.
- tinytorch.manual_seed seeds all devices, tinytorch.cuda.manual_seed only the current GPU. It does
  nothing where there is none, so that one program runs on both machines. (The trap: to resume
  a run, bring back the states of all generators, not of one.)

The state is a uint8 tensor on the CPU, so that it can be saved.

Without a GPU, the demo simulates one: a device type `cuda` whose arrays are NumPy's.

New: register, default_generator, get_rng_state, set_rng_state, manual_seed, manual_seed_all,
initial_seed. With them, tinytorch/cuda/random.py is finished.
Try: leave out the call of register() in the demo, and see which promise fails.
"""

import functools
import math
import struct
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.tensor import Tensor
from tinytorch.cuda.backend import backend, cupy, device_count, is_available, on_cuda
from tinytorch.ops.random import Generator, box_muller, generator_for

LOW = 0xFFFFFFFF  # the lower 32 bits


@functools.singledispatch
def philox(counters: Any, seed: int) -> Any:
    """Four random 32-bit words for each counter: (n,) uint64 -> (n, 4) uint32.

    Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011): ten rounds of multiplying, exchanging halves and mixing in a key.
    """
    xp = device_of(counters).xp
    a, b = counters & LOW, counters >> 32
    c = d = xp.zeros_like(counters)
    key, other_key = seed & LOW, seed >> 32
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ key, q & LOW, (p >> 32) ^ d ^ other_key, p & LOW
        key, other_key = (key + 0x9E3779B9) & LOW, (other_key + 0xBB67AE85) & LOW
    return xp.stack([a, b, c, d], axis=-1).astype(xp.uint32)


PHILOX = """
    unsigned int a = counter, b = counter >> 32, c = 0, d = 0, key = seed, other_key = seed >> 32;
    for (int round = 0; round < 10; round++) {
        unsigned long long p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
        a = (unsigned int)(q >> 32) ^ b ^ key, b = (unsigned int)q;
        c = (unsigned int)(p >> 32) ^ d ^ other_key, d = (unsigned int)p;
        key += 0x9E3779B9u, other_key += 0xBB67AE85u;
    }
    words[4 * i] = a, words[4 * i + 1] = b, words[4 * i + 2] = c, words[4 * i + 3] = d;
"""


@functools.cache
def philox_kernel() -> Any:
    """CuPy writes the rest of the kernel: the loop over i, and where `counter` comes from."""
    arguments = "uint64 counter, uint64 seed", "raw uint32 words"
    return cupy.ElementwiseKernel(*arguments, PHILOX, "philox")


@on_cuda(philox)
def philox_on_cuda(counters: Any, seed: int) -> Any:
    words = cupy.empty((counters.size, 4), cupy.uint32)
    philox_kernel()(counters, np.uint64(seed), words, size=counters.size)
    return words


class PhiloxSource:
    """The random numbers of a device, made there. Its state is two numbers: seed and counter."""

    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # of a mantissa

    def __init__(self, device: Device):
        self.device = device
        self.seed(0)

    def seed(self, seed: int) -> None:
        self.key, self.counter = seed, 0

    def get_state(self) -> bytes:
        return struct.pack("<QQ", self.key, self.counter)

    def set_state(self, state: bytes) -> None:
        self.key, self.counter = struct.unpack("<QQ", state)

    def words(self, n: int) -> Any:
        """n random numbers of 64 bits; the next call goes on after them."""
        xp, count = self.device.xp, (n + 1) // 2
        words = philox(xp.arange(count, dtype=xp.uint64) + self.counter, self.key)
        self.counter += count
        return words.view(xp.uint64).reshape(-1)[:n]

    def mantissa(self, dtype: np.dtype) -> int:
        if dtype.name not in self.bits:
            raise NotImplementedError(f"random numbers of type {dtype}: ask for a float type")
        return self.bits[dtype.name]

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        bits = self.mantissa(dtype)
        words = self.words(math.prod(shape)) >> (64 - bits)
        return (words.astype(dtype) * dtype.type(2.0**-bits)).reshape(shape)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        self.mantissa(dtype)
        n, wide = math.prod(shape), np.dtype(np.float64 if dtype == np.float64 else np.float32)
        u, v = (self.uniform(((n + 1) // 2,), wide) for _ in range(2))
        pairs = box_muller(self.device.xp, u, v)
        return pairs.reshape(-1)[:n].astype(dtype).reshape(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        words, span = self.words(math.prod(shape)), high - low
        words = words % span if span < 1 << 64 else words
        return (words.astype(np.int64) + low).astype(dtype).reshape(shape)

    def permutation(self, n: int) -> Any:
        return self.device.xp.argsort(self.words(n))


def register() -> bool:
    """Lets the generators of `cuda` draw on the GPU."""
    if is_available():
        backend.random_source = PhiloxSource
    return is_available()


registered = register()


def default_generator(device: Any) -> Generator:
    return generator_for(as_device(device), None)


def get_rng_state(device: Any = "cuda") -> Tensor:
    """Where the random numbers of a GPU are now, as a uint8 tensor on the CPU."""
    return default_generator(device).get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Lets a GPU's random numbers go on from where get_rng_state() was called."""
    default_generator(device).set_state(new_state)


def manual_seed(seed: int) -> None:
    """Seeds the current GPU. tinytorch.manual_seed seeds all devices. Nothing without a GPU."""
    if is_available():
        default_generator("cuda").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds all GPUs."""
    for index in range(device_count()):
        default_generator(index).manual_seed(seed)


def initial_seed() -> int:
    """The seed of the current GPU."""
    return default_generator("cuda").initial_seed()


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.device import Backend, register_backend
    from tinytorch.ops.random import manual_seed as seed_all
    from tinytorch.ops.random import rand

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU."""

    if not is_available():
        backend = Backend(
            np,
            Simulated,
            from_numpy=lambda array, index: np.asarray(array).view(Simulated),
            to_numpy=np.asarray,
            index_of=lambda array: 0,
        )
        register_backend("cuda", backend)
        print("drawn by a", type(Generator("cuda").source).__name__)  # -> drawn by a HostSource
        is_available, device_count = (lambda: True), (lambda: 1)
        register()
    print("now by a", type(Generator("cuda").source).__name__)  # -> now by a PhiloxSource

    seed_all(3)
    on_cpu, on_gpu = rand(3).tolist(), rand(3, device="cuda").tolist()
    print("one seed, two devices, the same numbers:", on_cpu == on_gpu)
    # -> one seed, two devices, the same numbers: False
    seed_all(3)
    print("again:", rand(3).tolist() == on_cpu, rand(3, device="cuda").tolist() == on_gpu)
    # -> again: True True

    manual_seed(3)  # the GPU's alone
    back, goes_on = rand(3, device="cuda").tolist() == on_gpu, rand(3).tolist() != on_cpu
    print(f"GPU from the start: {back}, the CPU goes on: {goes_on}")
    # -> GPU from the start: True, the CPU goes on: True
    manual_seed_all(4)
    print("seeds of GPU and CPU:", initial_seed(), default_generator("cpu").initial_seed())
    # -> seeds of GPU and CPU: 4 3

    state = get_rng_state()
    drawn = rand(3, device="cuda").tolist()
    set_rng_state(state)
    print(state.dtype, state.shape, rand(3, device="cuda").tolist() == drawn)
    # -> tinytorch.uint8 tinytorch.Size([16]) True
