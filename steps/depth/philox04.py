"""Step philox04: Uniform floats below 1, in each type

A word of 64 bits divided by 2^64 is a number in [0, 1): in mathematics. As a float it is rounded,
and the largest words are rounded up. A float32 has a mantissa of 24 bits, so all from 1 - 2^-25 on
become 1.0; a float16 with 11 bits does that once in 4,096 draws. Then log(1 - u), from which other
distributions are made, is -inf, once in a long run.

So take no more bits than the mantissa holds. These are the top bits of the word; the number they
form is exact in the type, and so is its product with a power of two:

    u = (word >> (64 - bits)) * 2^-bits           bits: 11, 8, 24, 53

The largest is 1 - 2^-bits, and it is a number of the type. The other trap is the lower end: u can
be 0, so use log(1 - u), never log(u).

Normal numbers come from pairs of uniform ones by box_muller, as in step random04. Two are drawn at
a time, and for an odd n one is left out. float16 is drawn in float32 and rounded at the end: with
11 bits there would be no normal number beyond 3.9. An integer type has no numbers between 0 and 1,
and is refused.

With this, a PhiloxSource has all that a Generator asks of its source: rand, randn, randint and
randperm draw from it, and none of them has to change.

Changed: PhiloxSource (bits, mantissa, uniform, normal).
Try: give float16 12 bits in PhiloxSource.bits, one more than its mantissa has.
"""

import math
import struct
from typing import Any

import numpy as np

from tinytorch.core.device import Device, device_of
from tinytorch.ops.random import box_muller

LOW = 0xFFFFFFFF  # the lower 32 bits


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


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.device import cpu
    from tinytorch.ops.random import Generator, rand, randint, randn, randperm

    source = PhiloxSource(cpu)
    source.seed(1)
    float16, float32 = np.dtype(np.float16), np.dtype(np.float32)
    rounded = (source.words(100_000) * 2.0**-64).astype(float16)
    print("divided by 2^64, then rounded:", rounded.max(), "in", (rounded == 1).sum(), "of 100,000")
    # -> divided by 2^64, then rounded: 1.0 in 21 of 100,000
    half = source.uniform((100_000,), float16)
    print("by its top 11 bits:", half.max() < 1, float(half.max()) == 1 - 2.0**-11)
    # -> by its top 11 bits: True True

    for name in ("float16", "float32", "float64"):
        u = source.uniform((100_000,), np.dtype(name))
        print(f"{u.dtype}: below 1: {u.max() < 1}, mean {u.mean(dtype=float):.2f}")
        # -> float16: below 1: True, mean 0.50
        # -> float32: below 1: True, mean 0.50
        # -> float64: below 1: True, mean 0.50
    z = source.normal((100_001,), float32)
    print(f"normal: {z.shape}, mean {abs(z.mean()):.1f}, deviation {z.std():.2f}")
    # -> normal: (100001,), mean 0.0, deviation 1.00
    print(
        f"with 11 bits, at most {np.sqrt(-2 * np.log(2.0**-11)):.1f}"
    )  # -> with 11 bits, at most 3.9
    print("in float16, the largest is above 3.9:", source.normal((100_000,), float16).max() > 3.95)
    # -> in float16, the largest is above 3.9: True
    try:
        source.uniform((3,), np.dtype(np.int64))
    except NotImplementedError as error:
        print(error)  # -> random numbers of type int64: ask for a float type

    own = Generator("cpu")
    own.source = PhiloxSource(cpu)  # a backend says so for its device: random_source=PhiloxSource
    own.manual_seed(3)
    drawn = rand(4, generator=own)
    print(randn(2, generator=own).shape, randint(1, 7, (5,), generator=own).shape)
    # -> tinytorch.Size([2]) tinytorch.Size([5])
    print(sorted(randperm(5, generator=own).tolist()))  # -> [0, 1, 2, 3, 4]
    own.manual_seed(3)
    print(
        "the same seed:", rand(4, generator=own).tolist() == drawn.tolist()
    )  # -> the same seed: True
