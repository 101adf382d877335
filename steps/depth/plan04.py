"""Step plan04: A plan for networks of four sizes

Step 98a planned one training on 1,024 GPUs. Here the plans of networks of several sizes are
compared, with the model of step plan03, and ZeRO (step 96a) is among the ways. The machine: GPUs of
400 teraflops in practice, with 80 GB, eight of them in a box with fast wires, and slower wires
between the boxes. For each network, the ways that fit, and the best:

    data        sends gradients once, behind backward; but all must fit into one GPU
    ZeRO        the same with 4 bytes for a weight and 12 divided; weights and gradients must fit
    tensor      divides all; but sends in every layer, so not beyond the box
    pipeline    divides all and sends little; but has the bubble

The trap is in what is left out: memory's bandwidth, what fails, attention's own work, and the last
layer. The order of the plans is worth more than their times.

New: Machine, Network, plan, which are not in the package.
Try: wires between the boxes that are as fast as those inside. What becomes of pipelines?
"""

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


if __name__ == "__main__":
    gpus = Machine(4e14, 80e9, 8, (5e-6, 3e11), (2e-5, 4e10))
    networks = {
        "1 billion": Network(24, 2048, 2**22),
        "13 billion": Network(40, 5120, 2**22),
        "100 billion": Network(80, 10240, 2**22),
        "1,000 billion": Network(128, 25600, 2**22),
    }
    powers = [2**i for i in range(11)]
    divisions = [(1024 // t // p, t, p) for t in powers for p in powers if t * p <= 1024]
    kinds = {
        "data": [(d, False) for d in divisions if d[0] == 1024],
        "ZeRO": [(d, True) for d in divisions if d[0] == 1024],
        "and tensor": [(d, True) for d in divisions if d[2] == 1 < d[1]],
        "and pipeline": [(d, True) for d in divisions if d[1] == 1 < d[2]],
        "all": [(d, True) for d in divisions],
    }

    def compare(title):
        net = networks[title]
        for kind, choices in kinds.items():
            plans = [(plan(net, gpus, *d, zero), d) for d, zero in choices if d[2] <= net.layers]
            fitting = [
                (sum(p["seconds"].values()), p, d) for p, d in plans if p["bytes"] < gpus.memory
            ]
            if not fitting:
                least = min(p["bytes"] for p, _ in plans)
                print(f"  {kind:12} does not fit: {least / 1e9:,.0f} GB")
                continue
            total, best, d = min(fitting, key=lambda entry: entry[0])
            parts = [f"{cause} {s / total:.0%}" for cause, s in best["seconds"].items()]
            division = " x ".join(map(str, d))
            print(f"  {kind:12} {division:13} {total:6.2f} s:", ", ".join(parts))

    compare("1 billion")
    # ->   data         1024 x 1 x 1    0.20 s: work 37%, bubble 0%, tensor 0%, data 63%
    # ->   ZeRO         1024 x 1 x 1    0.20 s: work 37%, bubble 0%, tensor 0%, data 63%
    # ->   and tensor   256 x 4 x 1     0.12 s: work 61%, bubble 0%, tensor 36%, data 3%
    # ->   and pipeline 256 x 1 x 4     0.13 s: work 56%, bubble 42%, tensor 0%, data 2%
    # ->   all          256 x 2 x 2     0.11 s: work 68%, bubble 17%, tensor 12%, data 3%
    compare("13 billion")
    # ->   data         does not fit: 204 GB
    # ->   ZeRO         1024 x 1 x 1    1.68 s: work 46%, bubble 0%, tensor 0%, data 54%
    # ->   and tensor   256 x 4 x 1     0.93 s: work 83%, bubble 0%, tensor 17%, data 0%
    # ->   and pipeline 256 x 1 x 4     1.35 s: work 57%, bubble 43%, tensor 0%, data 0%
    # ->   all          256 x 4 x 1     0.93 s: work 83%, bubble 0%, tensor 17%, data 0%
    compare("100 billion")
    # ->   data         does not fit: 1,619 GB
    # ->   ZeRO         does not fit: 412 GB
    # ->   and tensor   128 x 8 x 1     7.62 s: work 81%, bubble 0%, tensor 19%, data 0%
    # ->   and pipeline 128 x 1 x 8    11.60 s: work 53%, bubble 47%, tensor 0%, data 0%
    # ->   all          128 x 4 x 2     7.53 s: work 82%, bubble 10%, tensor 8%, data 0%
    compare("1,000 billion")
    # ->   data         does not fit: 16,137 GB
    # ->   ZeRO         does not fit: 4,069 GB
    # ->   and tensor   8 x 128 x 1   1076.60 s: work 6%, bubble 0%, tensor 94%, data 0%
    # ->   and pipeline 8 x 1 x 128   123.21 s: work 50%, bubble 50%, tensor 0%, data 0%
    # ->   all          8 x 8 x 16     74.39 s: work 83%, bubble 10%, tensor 7%, data 0%
