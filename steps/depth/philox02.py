"""Step philox02: A source of random numbers: a seed and a counter

Each program that calls philox gets the same numbers, and so do two calls in one program, if both
begin at counter 0. Two things are missing. A seed: it is the key with which the first round begins,
and one bit of it changes half of all bits. And a count: n numbers take the next n / 2 counters
(each gives four words of 32 bits, which are two of 64).

    counter        0   1   2   3   4 ...
    words(4)       ^   ^
    words(4)               ^   ^              the next call goes on

This is all that a source has to remember. The state of a chain of good quality has 2,500 bytes
(Mersenne Twister); here, two numbers of 64 bits are a bookmark, and setting them goes back.

The trap: an odd number of words takes a whole counter, and throws half of it away. So words(3) and
then words(1) are not the same as words(4).

It draws where its device computes, in that device's array library (device.xp). Here it is the CPU.

Changed: philox (seed). New: PhiloxSource.
Try: words(3) and then words(1), against words(4). Which word is thrown away?
"""

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


if __name__ == "__main__":
    from tinytorch.core.device import cpu

    many, other = (philox(np.arange(1000, dtype=np.uint64), seed) for seed in (6, 7))
    differ = np.unpackbits((many ^ other).view(np.uint8)).mean()
    print(f"seeds 6 and 7, bits that differ: {differ:.2f}")
    # -> seeds 6 and 7, bits that differ: 0.50
    first, second = (philox(np.arange(2, dtype=np.uint64), 1) for _ in range(2))
    print("two calls from counter 0, the same numbers:", np.array_equal(first, second))
    # -> two calls from counter 0, the same numbers: True

    source = PhiloxSource(cpu)
    source.seed(1)
    four = [source.words(4), source.words(4)]
    source.seed(1)
    print("two calls go on:", np.array_equal(np.concatenate(four), source.words(8)))
    # -> two calls go on: True
    state = source.get_state()
    print("the state is two numbers:", struct.unpack("<QQ", state))
    # -> the state is two numbers: (1, 4)
    eight = source.words(8)
    source.set_state(state)
    print("back, and again:", np.array_equal(source.words(8), eight))  # -> back, and again: True
