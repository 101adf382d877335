"""Step philox01: Philox in the package's dress: arrays of counters

Step 81c built Philox: random number i as a function of i. Here it computes many counters at once,
with arrays of 64 bits, on any device:

    p = a * 0xD2511F53, q = c * 0xCD9E8D57        products of 64 bits
    a, b, c, d = high(q) ^ b ^ key,  low(q),  high(p) ^ d ^ other_key,  low(p)

Keys and counters have two words of 32 bits each. As each round can be undone, two counters never
give the same four words.

The trap: this is for simulations, not for secrets: every number can be computed from the others by
a program that knows how. PyTorch's generator on a GPU is this one, too.

Changed: philox. New: LOW.
Try: `range(2)` instead of `range(10)`. How many bits differ from one i to the next?
"""

from typing import Any

from tinytorch.core.device import device_of

LOW = 0xFFFFFFFF  # the lower 32 bits


def philox(counters: Any) -> Any:
    """Four random 32-bit words for each counter: (n,) uint64 -> (n, 4) uint32.

    Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011): ten rounds of multiplying, exchanging halves and mixing in a key.
    """
    xp = device_of(counters).xp
    a, b = counters & LOW, counters >> 32
    c = d = xp.zeros_like(counters)
    key = other_key = 0
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ key, q & LOW, (p >> 32) ^ d ^ other_key, p & LOW
        key, other_key = (key + 0x9E3779B9) & LOW, (other_key + 0xBB67AE85) & LOW
    return xp.stack([a, b, c, d], axis=-1).astype(xp.uint32)


if __name__ == "__main__":
    import numpy as np

    # A chain: to get number 617, all before it.
    def chain(state):
        while True:
            state = (1664525 * state + 1013904223) % 2**32
            yield state

    numbers = chain(7)
    print("number 617:", [next(numbers) for _ in range(617)][-1], "after 616 others")
    # -> number 617: 3115145090 after 616 others
    first = [next(chain(thread)) for thread in range(4)]
    print(
        "four threads, each with its own seed:",
        [b - a for a, b in zip(first[:-1], first[1:], strict=True)],
    )
    # -> four threads, each with its own seed: [1664525, 1664525, 1664525]

    many = philox(np.arange(1000, dtype=np.uint64))
    alone = philox(np.array([617], dtype=np.uint64))
    print("number 617, asked for alone:", (alone[0] == many[617]).all())
    # -> number 617, asked for alone: True
    print([f"{int(word):08x}" for word in philox(np.zeros(1, np.uint64))[0]])  # as published
    # -> ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']

    ones = np.unpackbits(many.view(np.uint8)).mean()
    print(f"bits that are 1: {ones:.2f}")  # -> bits that are 1: 0.50
    changed = np.unpackbits((many[:-1] ^ many[1:]).view(np.uint8)).mean()
    print(f"bits that differ from one i to the next: {changed:.2f}")
    # -> bits that differ from one i to the next: 0.50
