"""Step philox03: Integers and permutations from random words

randint(1, 7) wants a die, and the shuffling of a dataset an order of its numbers. The source of
step philox02 has words of 64 bits.

For integers below `span` there is the remainder: words % span. It is not quite fair. 2^64 is not a
multiple of 6, so some sides of a die come up once more in 2^64 draws; no test can see that. With 8
bits it would be visible: of 256 values, 43 give a 0 and 42 a 5.

A permutation is the order in which random words would be sorted: argsort. Two words are equal only
with probability n^2 / 2^65.

The trap: words are unsigned. `low` may be negative, so the words become int64 before it is added.
And the full range of int64 has 2^64 values: that span does not fit 64 bits, and needs no remainder.

(PyTorch takes the remainder, too.)

New: PhiloxSource.integers, PhiloxSource.permutation.
Try: add `low` before astype(np.int64). What does NumPy say of -5?
"""

import math
import struct
from typing import Any

import numpy as np

from tinytorch.core.device import Device, device_of

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

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        words, span = self.words(math.prod(shape)), high - low
        words = words % span if span < 1 << 64 else words
        return (words.astype(np.int64) + low).astype(dtype).reshape(shape)

    def permutation(self, n: int) -> Any:
        return self.device.xp.argsort(self.words(n))


if __name__ == "__main__":
    from tinytorch.core.device import cpu

    source, int64 = PhiloxSource(cpu), np.dtype(np.int64)
    source.seed(1)
    dice = source.integers(1, 7, (60_000,), int64)
    share = np.bincount(dice)[1:] / len(dice)
    print("each side, a sixth:", (abs(share - 1 / 6) < 0.01).all())  # -> each side, a sixth: True
    print(np.bincount(np.arange(256) % 6))  # -> [43 43 43 43 42 42]
    shifted = source.integers(-5, 5, (2, 3), int64)
    print("with negative ones:", shifted.shape, shifted.min() >= -5, shifted.max() < 5)
    # -> with negative ones: (2, 3) True True
    widest = source.integers(-(2**63), 2**63, (1000,), int64)
    print("half of all int64 are below 0:", round((widest < 0).mean(), 1))
    # -> half of all int64 are below 0: 0.5
    order = source.permutation(1000)
    print(
        "all there:", np.array_equal(np.sort(order), np.arange(1000)), "first:", len(set(order[:9]))
    )
    # -> all there: True first: 9
