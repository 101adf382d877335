"""Step plan05: A picture: which division wins where

Step plan04 has planned for 1,024 GPUs. Which division is right with 8, or with 10,000? The picture
has a row for each size of network, and a column for each number of GPUs. Each field is the fastest
division that fits, by its letters:

    d  data      Z  data, with ZeRO      t  tensor      p  pipeline      -  nothing fits

Read it from the lower left, where a network does not fit at all, to the upper right, where it would
fit into one GPU and there are too many of them.

    downwards       the larger the network, the more ways are needed at once, so that it fits
    to the right    with more GPUs each has fewer samples, so gradients take longer than the work
                    that hides them; tensor and pipeline shrink the gradients of each GPU

Where d and Z are equally fast, d is named; Z wins only where d does not fit.

The trap: all of it holds for this machine and four million tokens a step. The picture is an
argument for having the model, not for its fields.

New: divisions, winner, which are not in the package.
Try: tokens = 2**24, and read the row of 13 billion.
"""

import math
from typing import NamedTuple


class Machine(NamedTuple):
    """Processors in boxes: seconds, bytes per second, operations per second."""

    flops: float
    memory: float  # bytes of each processor
    box: int  # processors in a box
    inside: tuple[float, float]  # (latency, bandwidth) of the wires in a box
    between: tuple[float, float]  # and between two boxes


class Network(NamedTuple):
    """A Transformer."""

    layers: int
    width: int
    tokens: int  # of a step
    length: int = 4096  # tokens of a sequence

    @property
    def params(self) -> float:
        return 12 * self.layers * self.width**2


def ring(size: float, n: int, wires: tuple[float, float]) -> float:
    """Seconds of an all_reduce of `size` bytes."""
    latency, bandwidth = wires
    return 2 * (n - 1) * (latency + size / n / bandwidth)


def plan(net: Network, machine: Machine, d: int, t: int, p: int, zero: bool) -> dict:
    """Seconds of a step, by their cause, and the bytes that a processor needs."""
    m = max(net.tokens // net.length // d, 1)  # parts of the pipeline, a sequence each
    work = 6 * net.params * net.tokens / (d * t * p) / machine.flops
    outputs = 2 * net.length * net.width  # bytes of one sequence between two layers
    wires = machine.inside if t <= machine.box else machine.between
    sent = ring(2 * net.params / (t * p), d, machine.between)  # gradients in bfloat16
    seconds = {
        "work": work,
        "bubble": work * (p - 1) / m,
        "tensor": 4 * net.layers / p * m * ring(outputs, t, wires),
        "data": max(sent - work / 2, 0.0),  # the rest is hidden behind backward
    }
    weights = net.params / (t * p) * (4 + 12 / (d if zero else 1))
    inputs = outputs * net.layers / p * min(m, p)  # of each layer, kept by step checkpoint01
    within = 17 * outputs / t  # of the one layer that is computed again
    return {"seconds": seconds, "bytes": weights + inputs + within, "m": m}


def divisions(gpus: int) -> list[tuple[int, int, int]]:
    """All ways to write the number of GPUs as data x tensor x pipeline."""
    powers = [2**i for i in range(gpus.bit_length())]
    return [(gpus // t // p, t, p) for t in powers for p in powers if t * p <= gpus]


def winner(net: Network, machine: Machine, gpus: int) -> str:
    """The fastest division that fits, by its letters: d, Z for ZeRO, t, p; - where none does."""
    found = [(math.inf, "-")]
    for d, t, p in divisions(gpus):
        for zero in (False, True):
            made = plan(net, machine, d, t, p, zero)
            if made["bytes"] < machine.memory and p <= net.layers and d <= net.tokens / net.length:
                letters = (d > 1) * ("Z" if zero else "d") + (t > 1) * "t" + (p > 1) * "p"
                found.append((sum(made["seconds"].values()), letters or "one"))
    return min(found, key=lambda entry: entry[0])[1]


if __name__ == "__main__":
    gpus = Machine(4e14, 80e9, 8, (5e-6, 3e11), (2e-5, 4e10))
    networks = {
        "0.1": Network(12, 768, 2**22),
        "1": Network(24, 2048, 2**22),
        "13": Network(40, 5120, 2**22),
        "100": Network(80, 10240, 2**22),
        "1000": Network(128, 25600, 2**22),
    }
    counts = [1, 8, 64, 256, 1024, 4096, 16384]
    print("billions  " + "".join(f"{n:>7}" for n in counts) + "   GPUs")
    # -> billions        1      8     64    256   1024   4096  16384   GPUs
    for name, net in networks.items():
        print(f"{name:>8}  " + "".join(f"{winner(net, gpus, n):>7}" for n in counts))
    # ->      0.1      one      d      d     dp    dtp    dtp    dtp
    # ->        1      one      d      d      d    dtp    dtp    dtp
    # ->       13        -      Z      Z      Z     dt    dtp    dtp
    # ->      100        -      -    Ztp    Ztp    Ztp    Ztp    dtp
    # ->     1000        -      -      -      -    Ztp    Ztp    Ztp
