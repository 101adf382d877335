"""Step plan03: A model of cost, checked against measurements

Before a program for 1,000 GPUs is written, it should be known how long its messages will take. Two
numbers of a wire are enough: how long an empty message takes (latency), and how many bytes pass in
a second (bandwidth). In the ring of step simulator03 each rank sends 2 (n - 1) chunks, one after
the other:

    all_reduce of b bytes, n processes      2 (n - 1) (latency + b / n / bandwidth)

Short messages cost latency, which grows with n. Long ones cost bandwidth: 2 b / bandwidth, however
many processes there are.

A model is worth what its check is worth. The two numbers are taken from two measurements between
two processes of one machine (4 bytes and a megabyte), and predict the others. The model is right
within a tenth for most, and off by two for 16 KB, and for 40 MB, which no cache holds.

Then whole steps (python -m benchmarks.ddp, on a busy machine): time of one process's step, and an
all_reduce of its gradients that nothing hides. The model promises more than was measured, since two
processes also share the memory's bandwidth.

That is how far it can be trusted: a factor of two for a message, a sixth for a step.

The trap: a model that is fitted to all measurements cannot be wrong on any of them.

New: ring, which is not in the package.
Try: python -m benchmarks.ddp on your machine, and your own two numbers.
"""


def ring(size: float, n: int, wires: tuple[float, float]) -> float:
    """Seconds of an all_reduce of `size` bytes."""
    latency, bandwidth = wires
    return 2 * (n - 1) * (latency + size / n / bandwidth)


if __name__ == "__main__":
    # The model, and what was measured: two processes of one machine, microseconds.
    here = (3.5e-6, 4.2e9)  # fits the first and the fourth line
    measured = {4: 6.9, 1024: 7.4, 16384: 18.0, 2**20: 253, 2**22: 976, 40_000_000: 20350}
    for size, found in measured.items():
        guess = ring(size, 2, here) * 1e6
        print(f"{size:10,} bytes: {guess:6.0f} us by the model, {found:6.0f} measured")
    # ->          4 bytes:      7 us by the model,      7 measured
    # ->      1,024 bytes:      7 us by the model,      7 measured
    # ->     16,384 bytes:     11 us by the model,     18 measured
    # ->  1,048,576 bytes:    257 us by the model,    253 measured
    # ->  4,194,304 bytes:   1006 us by the model,    976 measured
    # -> 40,000,000 bytes:   9531 us by the model,  20350 measured
    for name, one, size, found in (("MLP", 0.0298, 7.4e6, 1.61), ("CNN", 0.0501, 1.6e6, 1.77)):
        guess = 2 * one / (one + ring(size, 2, here))
        print(f"{name}: two processes {guess:.2f} times as fast by the model, {found} measured")
    # -> MLP: two processes 1.89 times as fast by the model, 1.61 measured
    # -> CNN: two processes 1.98 times as fast by the model, 1.77 measured
