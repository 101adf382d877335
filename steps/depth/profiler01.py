"""Step profiler01: A profiler in the package's dress

Step 83a built a mode that times each operation. This run makes PyTorch's profiler of it, one column
after the other. `finally` records the time of a call that raises, too, and the error goes on to the
caller. With no mode open, Function.apply makes one truth test, as before: a profiler that is off
costs nothing.

The trap: the first call of all is not like the others. It finds a cold cache, makes threads, asks
the system for memory. So run the program once before you measure it. And the clock must be the one
for durations: time.time() may jump when the system's clock is set.

(PyTorch's profiler is torch.profiler.profile. It records calls in C++, in the dispatcher.)

Changed: profile.
Try: look at the times without the two calls before the `with`. Which operation is slower now?
"""

import importlib
import time
from typing import Any

from tinytorch.autograd.modes import FunctionMode
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed, randint, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class profile(FunctionMode):
    """`with profile() as prof:` counts and times the operations that this thread calls."""

    def __init__(self):
        self.times: dict[str, list] = {}  # in microseconds: one for each call

    def call(self, function: type, args: tuple) -> Any:
        start = time.perf_counter_ns()
        try:
            return function.apply(*args)
        finally:
            elapsed = (time.perf_counter_ns() - start) / 1000
            self.times.setdefault(function.__name__, []).append(elapsed)


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(Linear(64, 1024), ReLU(), Linear(1024, 10))
    x, digits = randn(256, 64), randint(0, 10, (256,))

    for _ in range(2):
        cross_entropy(model(x), digits)
    with profile() as prof:
        for _ in range(10):
            cross_entropy(model(x), digits)
    cross_entropy(model(x), digits)  # after the block, nothing is recorded

    for name, times in prof.times.items():
        print(f"{name:8} {len(times):3} calls {sum(times):10.1f} us")
    # -> Addmm     20 calls ... us
    # -> Relu      10 calls ... us
    # -> NllLoss   10 calls ... us

    first, second = sum(prof.times["Addmm"][0::2]), sum(prof.times["Addmm"][1::2])
    print(f"first layer {first:.0f} us, second {second:.0f} us")  # -> ...
    print(first > second)  # -> True

    # A call that raises is counted, and raises.
    with profile() as prof:
        try:
            randn(2, 3) + randn(4)
        except RuntimeError as error:
            print(type(error).__name__, [len(times) for times in prof.times.values()])
            # -> RuntimeError [1]
