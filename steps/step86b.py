"""Step 86b: The roofline: bound by arithmetic, or by memory

A large product runs at 100 billion FLOPs a second here, a ReLU at four billion. Is the ReLU badly
written? No. It does one operation for 8 bytes that it reads and writes, and waits for the memory.

The FLOPs for each byte that is moved are an operation's arithmetic intensity. A machine has two
limits, the FLOPs of a second (peak) and the bytes of a second (bandwidth). So at best

    FLOPs a second = min(peak, intensity * bandwidth)

Over the intensity this is a roof: a slope where memory is the limit, flat where arithmetic is. An
operation under the slope gets faster if it moves fewer bytes: in halves (step 85a), or fused with
its neighbours (step 82e).

The same layer can be on either side. Its 64 MB of weights, read for one example, give two FLOPs for
four bytes. With 256 examples each weight that was read is used 256 times.

The two limits are measured with a large product and a large copy. What is not a product counts one
FLOP for each result.

The trap is a cache: arrays that fit into it are not read from memory, and lie above the roof.

PyTorch: no such mode; NVIDIA's Nsight Compute draws this picture for each kernel of a GPU.

New: RooflineMode, machine_limits, picture.
Try: 2, 4 and 8 examples in place of 1, 16 and 256. Which batches are bound by memory?
"""

import time
from math import log2
from timeit import repeat

import numpy as np

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.engine import NodeMode
from tinytorch.core.tensor import Tensor
from tinytorch.nn.functional import relu
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn


class FlopCounterMode(NodeMode):
    """`with FlopCounterMode() as counter:` adds up the FLOPs of products, and of their backward."""

    def __init__(self):
        self.flops = 0
        self.of_node = {}  # the FLOPs of the product that a node belongs to

    def call(self, function, args):
        result = function.apply(*args)
        if function.__name__ in ("Addmm", "MatMul"):
            flops = 2 * result.numel() * args[0].shape[-1]
            self.flops += flops
            self.of_node[result.grad_fn] = flops
        return result

    def call_node(self, step, node, grad, as_tensors):
        if node in self.of_node:
            needed = [edge for edge in node.edges[:2] if edge is not None]  # not that of a bias
            self.flops += len(needed) * self.of_node[node]
        return step(node, grad, as_tensors)

    def get_total_flops(self):
        return self.flops


class RooflineMode(FlopCounterMode):
    """Notes of each operation its FLOPs, the bytes of its arrays, and the seconds."""

    def __init__(self):
        super().__init__()
        self.points = []  # (FLOPs, bytes, seconds)

    def call(self, function, args):
        before, start = self.flops, time.perf_counter()
        result = super().call(function, args)
        seconds = time.perf_counter() - start
        flops = self.flops - before or result.numel()  # 0: not a product
        moved = sum(x.nbytes for x in (*args, result) if isinstance(x, Tensor))
        self.points.append((flops, moved, seconds))
        return result


def machine_limits():
    """The FLOPs and the bytes of a second."""
    a, b = np.ones((1024, 1024), np.float32), np.ones(1 << 25, np.float32)
    copy = b.copy()
    product = min(repeat(lambda: a @ a, number=1, repeat=5))  # seconds of the fastest of five
    copied = min(repeat(lambda: np.copyto(copy, b), number=1, repeat=5))
    return 2 * 1024**3 / product, 2 * b.nbytes / copied  # each byte is read, and written


def picture(points, peak, bandwidth):
    """The roof, and under it a letter at each (intensity, FLOPs a second)."""
    grid = [[" "] * 60 for _ in range(11)]  # a line halves, four columns double, 1 is column 20

    def put(intensity, speed, sign):
        grid[min(max(round(log2(peak / speed)), 0), 10)][round(4 * log2(intensity)) + 20] = sign

    for column in range(60):
        intensity = 2 ** ((column - 20) / 4)
        put(intensity, min(peak, intensity * bandwidth), "-")
    for letter, (intensity, speed) in points.items():
        put(intensity, speed, letter)
    axis = "    1/16            1               16              256   FLOPs a byte"
    return "\n".join(["".join(line).rstrip() for line in grid] + [axis])


if __name__ == "__main__":
    manual_seed(0)
    peak, bandwidth = machine_limits()
    print(f"{peak / 1e9:.0f} GFLOP and {bandwidth / 1e9:.0f} GB a second")
    # -> ... GFLOP and ... GB a second

    layer, points = Linear(4096, 4096), {}
    for name, function, data in (
        ("A relu(x)", relu, randn(1 << 23)),
        ("B layer, 1 example", layer, randn(1, 4096)),
        ("C layer, 16 examples", layer, randn(16, 4096)),
        ("D layer, 256 examples", layer, randn(256, 4096)),
    ):
        with RooflineMode() as mode:
            for _ in range(3):
                function(data)
        flops, moved, seconds = min(mode.points, key=lambda point: point[2])
        points[name[0]] = flops / moved, flops / seconds
        bound = "memory" if flops / moved < peak / bandwidth else "arithmetic"
        print(f"{name:22} {flops / moved:6.2f} FLOPs a byte, bound by {bound}")
    # -> A relu(x)                0.12 FLOPs a byte, bound by memory
    # -> B layer, 1 example       0.50 FLOPs a byte, bound by memory
    # -> C layer, 16 examples     7.94 FLOPs a byte, bound by ...
    # -> D layer, 256 examples  113.75 FLOPs a byte, bound by arithmetic
    print(picture(points, peak, bandwidth))
    # -> ...
