"""Step 98a: A plan for 1,000 GPUs

How would you train GPT-3, with 175 billion parameters, on 1,024 GPUs? Such a machine is too dear to
try the divisions of the work, so they are computed: d ranks for the samples (95b), t for each
matrix (96c), p for the layers (97a), with d t p = n.

Work: forward takes 2 operations for each parameter and token, a product and a sum; backward takes
4, for dL/dx and dL/dW; and 2 more compute forward again, to keep less (step 60c).

A message: latency, and bytes / bandwidth. The ring of step 94d sends 2 (n - 1) of size / n:

    seconds(all-reduce) = 2 (n - 1) (latency + size / n / bandwidth)

    d   data: 2 bytes for each gradient, hidden behind backward, which is half of the work
    t   tensor: 6 all-reduces in each layer for each sequence: 2 forward, 2 again, 2 backward
    p   pipeline: the bubble, (p - 1) / m of the work; what it sends is little, and left out here

Memory: for a parameter 2 + 2 bytes, and 12 / d by ZeRO (step 96a); and the inputs of the layers. A
layer has 12 width^2 parameters, 4 in its attention and 8 in its MLP.

The A100s are those of NVIDIA's data sheet; 60 % of their teraflops and the two latencies are
assumed. From what NVIDIA measured on 1,024 of them follow 34 days for 300 billion tokens (Narayanan
et al., 2021). This plan says 29.

The trap is in what is left out, such as memory's bandwidth.

New: A100, GPT3, ring, plan.
Try: 300 GB/s between the boxes as well. How many days does tensor alone take then?
In depth: plan01 to plan05.
"""


class A100:
    """A GPU, and the wires that it has: (seconds, bytes per second)."""

    flops, memory = 0.6 * 312e12, 80e9  # operations in a second, in practice; bytes
    box, inside, between = 8, (5e-6, 300e9), (20e-6, 25e9)  # GPUs in a box, and the wires


class GPT3:
    """Its shape, and the sequences of a batch."""

    layers, width, length, sequences = 96, 12288, 2048, 1536


def ring(size, n, wires):
    """Seconds of an all-reduce of `size` bytes by n ranks."""
    latency, bandwidth = wires
    return 2 * (n - 1) * (latency + size / n / bandwidth)


def plan(d, t, p, zero=True):
    """Seconds of a step, by what they are for, and the bytes that a GPU needs."""
    params = 12 * GPT3.layers * GPT3.width**2
    m = GPT3.sequences / d  # parts of the pipeline, one sequence each
    work = 8 * params * GPT3.sequences * GPT3.length / (d * t * p) / A100.flops
    sequence = 2 * GPT3.length * GPT3.width  # bytes of one, between two layers
    wires = A100.inside if t <= A100.box else A100.between
    gradients = ring(2 * params / (t * p), d, A100.between)
    seconds = {
        "work": work,
        "bubble": work * (p - 1) / m,
        "tensor": 6 * GPT3.layers / p * m * ring(sequence, t, wires),
        "data": max(gradients - work / 2, 0),
    }
    state = params / (t * p) * (4 + 12 / (d if zero else 1))
    # The inputs of a rank's layers are kept for the parts that are under way: p, step 97a.
    return seconds, state + sequence * GPT3.layers / p * min(m, p)


if __name__ == "__main__":
    powers = [1, 2, 4, 8, 16, 32, 64]  # of p the first six: 96 layers have no 64 parts
    divisions = [(1024 // t // p, t, p) for t in powers for p in powers[:6] if t * p <= 1024]
    kinds = {
        "data": [(1024, 1, 1, False)],
        "data, ZeRO": [(1024, 1, 1)],
        "and tensor": [each for each in divisions if each[2] == 1],
        "and pipeline": [each for each in divisions if each[1] == 1],
        "all three": divisions,
    }
    lines = []
    for kind, choices in kinds.items():
        plans = [(*plan(*each), each) for each in choices]
        fitting = [(sum(s.values()), s, each) for s, size, each in plans if size < A100.memory]
        if not fitting:
            lines.append(f"{kind:12} needs {plans[0][1] / 1e9:,.0f} GB in each GPU")
            continue
        total, seconds, division = min(fitting, key=lambda entry: entry[0])
        parts = ", ".join(f"{cause} {each / total:.0%}" for cause, each in seconds.items())
        days = total * 300e9 / (GPT3.sequences * GPT3.length) / 86400  # for 300 billion tokens
        lines.append(f"{kind:12} {' x '.join(map(str, division)):10} {days:3.0f} days: {parts}")
    print("\n".join(lines))
    # -> data         needs 2,788 GB in each GPU
    # -> data, ZeRO   needs 703 GB in each GPU
    # -> and tensor   64 x 16 x 1  92 days: work 27%, bubble 0%, tensor 73%, data 0%
    # -> and pipeline 64 x 1 x 16  41 days: work 62%, bubble 38%, tensor 0%, data 0%
    # -> all three    64 x 8 x 2  29 days: work 87%, bubble 4%, tensor 10%, data 0%
