"""Step 69n: Random numbers on a GPU, each from its own counter

Most generators are a chain: each number is made from the state that the previous one left. A
million threads cannot queue for it. So the GPU's generator works the other way round: number i is
the number i, scrambled. Any thread can make any number, in any order, at any time.

    words = philox(i, seed):  ten rounds of  multiply by an odd constant, swap halves, mix in a key

Philox (Salmon and others, 2011) is simple arithmetic on 32-bit words, and passes the known tests of
randomness. Its state is two numbers: the seed, and how far it has counted. PyTorch's generator on a
GPU has the same kind of state.

It is written twice. `philox` does the ten rounds on whole arrays, in any array library. PHILOX is
the same in CUDA C, for one i. The first reads and writes main memory in more than a hundred
operations; a thread of the second keeps everything in registers, and writes only the result. (CuPy
adds the loop over i. `on_cuda` of step 68g gives this body to CuPy's arrays.)

From words to numbers: the top 24 of 64 random bits, divided by 2^24, make a float32 in [0, 1). With
more bits than the mantissa holds, the largest would be rounded up to 1. (Trap: log(1 - u) is always
finite; log(u) is not, as u can be 0.) Pairs of them become normal by box_muller, as in step 65g.

PhiloxSource is what step 65g left room for: as Backend.random_source it draws for every function
there is, and for those that are new. These write into memory that is there already, as the first
values of a network are written: uniform_, normal_, exponential_, random_ and bernoulli_.

Each device has a generator of its own, and they do not give the same numbers: with the same seed, a
program draws other numbers on a GPU than on the CPU. tinytorch.manual_seed seeds them all,
tinytorch.cuda.manual_seed only the current GPU.

Changed: nothing. New: philox, PHILOX, PhiloxSource; the rest of tinytorch/cuda/random.py; bernoulli
and the functions that fill, in tinytorch/ops/sampling.py.
Try: give float16 12 bits in PhiloxSource.bits, one more than its mantissa has.
"""

import functools
import math
import struct
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import check_writable, overwrite
from tinytorch.core.device import Device, as_device, device_of
from tinytorch.core.dtype import float32
from tinytorch.core.limits import finfo, iinfo
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.cuda.backend import backend, cupy, device_count, is_available, on_cuda
from tinytorch.ops.random import Generator, box_muller, check_range, generator_for

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


@tensor_method("bernoulli")
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that `input` gives for each element, else 0; input's type. With `p`
    that is the probability, and input gives only the shape and the type.

    Raises:
        NotImplementedError: `input` is of an integer type.
        RuntimeError: a probability is outside of [0, 1].
    """
    if p is not None:
        return input.detach().clone().bernoulli_(p, generator=generator)
    p = input.array
    if not input.is_floating_point():
        raise NotImplementedError(f"bernoulli is not implemented for {input.dtype!r}")
    if p.size and not bool(((p >= 0) & (p <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    draws = generator_for(input.device, generator).source.uniform(p.shape, np.dtype(np.float32))
    return wrap((draws < p).astype(p.dtype), input.device)


def fill_with(self: Tensor, array: Any) -> Tensor:
    """Writes random numbers into a tensor. Its old elements have no part in the result."""
    check_writable(self)
    return overwrite(self, wrap(array.astype(self.array.dtype), self.device))


@tensor_method("uniform_")
def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **names: Any
) -> Tensor:
    """Fills with numbers from [from, to). `from` is a Python keyword, so pass it as the first
    argument.

    Raises:
        RuntimeError: `from` is above `to`.
    """
    low = names.pop("from", from_)
    if low > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    draws = generator_for(self.device, generator).source.uniform(self.array.shape, self.array.dtype)
    return fill_with(self, draws * (to - low) + low)


@tensor_method("normal_")
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills with normal numbers.

    Raises:
        RuntimeError: `std` is negative.
    """
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    draws = generator_for(self.device, generator).source.normal(self.array.shape, self.array.dtype)
    return fill_with(self, draws * std + mean)


@tensor_method("exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with waiting times, 1 / lambd on average. They are drawn in float64, where the
    probability of a 0, whose logarithm is infinite, is negligible.

    Raises:
        RuntimeError: `lambd` is not above 0, or the type is an integer type.
    """
    if lambd <= 0 or not self.is_floating_point():
        raise RuntimeError(f"exponential_ expects lambda > 0.0 and floats, but found {lambd}")
    source, wide = generator_for(self.device, generator).source, np.dtype(np.float64)
    return fill_with(self, -self.device.xp.log1p(-source.uniform(self.array.shape, wide)) / lambd)


@tensor_method("random_")
def random_(self: Tensor, *bounds: int, generator: Generator | None = None) -> Tensor:
    """Fills with integers: random_(from, to) up to to - 1, random_(to) from 0 on, and random_() up
    to the largest number below which the type holds every integer.

    Raises:
        RuntimeError: there are no such integers, or the type cannot hold them.
    """
    source, d = generator_for(self.device, generator).source, self.dtype
    bounds = bounds or [2 / finfo(d).eps if self.is_floating_point() else iinfo(d).max + 1]
    low, high = (0, *map(int, bounds))[-2:]
    check_range(low, high, self.array.dtype)
    return fill_with(self, source.integers(low, high, self.array.shape, self.array.dtype))


@tensor_method("bernoulli_")
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills with ones, with probability p (a number or a tensor), and zeros."""
    p = p if isinstance(p, Tensor) else tensor(p, dtype=float32, device=self.device)
    chances = p.detach().to(float32).expand(self.array.shape)
    return fill_with(self, bernoulli(chances, generator=generator).array)


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.device import cpu
    from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed as seed_all
    from tinytorch.ops.random import rand

    print([f"{int(word):08x}" for word in philox(np.zeros(1, np.uint64), 0)[0]])
    # -> ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    many = philox(np.arange(1000, dtype=np.uint64), 7)
    alone = philox(np.array([617], dtype=np.uint64), 7)
    print("number 617, asked for alone:", (alone[0] == many[617]).all())
    # -> number 617, asked for alone: True
    ones = np.unpackbits(many.view(np.uint8)).mean()
    print(f"bits that are 1: {ones:.2f}")  # -> bits that are 1: 0.50
    changed = np.unpackbits((many[:-1] ^ many[1:]).view(np.uint8)).mean()
    print(f"bits that differ from one i to the next: {changed:.2f}")
    # -> bits that differ from one i to the next: 0.50

    source = PhiloxSource(cpu)  # on the CPU, for once: it draws wherever it is told
    source.seed(1)
    u = source.uniform((100_000,), np.dtype(np.float32))
    print(f"uniform: {u.min():.2f} to {u.max():.2f}, below 1: {u.max() < 1}, mean {u.mean():.2f}")
    # -> uniform: 0.00 to 1.00, below 1: True, mean 0.50
    z = source.normal((100_000,), np.dtype(np.float32))
    print(f"normal: mean {abs(z.mean()):.1f}, deviation {z.std():.2f}")
    # -> normal: mean 0.0, deviation 1.00
    print("the state is two numbers:", struct.unpack("<QQ", source.get_state()))
    # -> the state is two numbers: (1, 100000)
    # A randn that only reserves memory, and starts no kernel, returns what was there before.
    old = np.full(100_000, 7.0, np.float32)
    del old
    left = np.empty(100_000, np.float32)
    print(f"reserved, not drawn: deviation {np.nan_to_num(left[:1000]).std():.2f}, not 1")  # -> ...
    state = source.get_state()
    first = source.integers(0, 10, (8,), np.dtype(np.int64))
    source.set_state(state)
    print("back, and again:", (source.integers(0, 10, (8,), np.dtype(np.int64)) == first).all())
    # -> back, and again: True

    half = source.uniform((100_000,), np.dtype(np.float16))
    print("float16 too is below 1:", half.max() < 1)  # -> float16 too is below 1: True

    # The generators of a program: one for each device, and the same seed gives the same again.
    place = as_device("cuda" if is_available() else "cpu")
    own = Generator(place).manual_seed(3)
    drawn = rand(4, device=place, generator=own)
    seed_all(3)
    print("a stream of its own, again:", (drawn == rand(4, device=place)).all().item())
    # -> a stream of its own, again: True
    print(f"drawn on {place} by a {type(own.source).__name__}")  # -> ...

    # Memory that is there already, filled.
    coins = zeros(10_000).bernoulli_(0.3)
    print("coins:", round(coins.mean().item(), 1))  # -> coins: 0.3
    waits = zeros(10_000).exponential_(4.0)
    print(f"waiting times: {waits.mean().item():.2f}")  # -> waiting times: 0.25
    print("dice:", sorted(set(zeros(1000).random_(1, 7).tolist())))
    # -> dice: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    x = zeros(10_000).normal_(5.0, 2.0)
    print(f"in place: {x.mean().item():.1f} and {x.std().item():.1f}")
    # -> in place: 5.0 and 2.0
