"""Step 83a: A mode that times each operation

Which operation of my network is slow? A guess is often wrong. The demo has two layers that differ
in one size: Linear(64, 1024) makes 1024 numbers from 64, Linear(1024, 1) makes 1 from 1024. Which
one takes longer, or is it the ReLU between them, that only compares?

All calls go through one place, where a mode may stand (step 65d; its finished FunctionMode is
imported). So no module has to change:

    start = clock();  result = function.apply(*args);  elapsed = clock() - start

Each call leaves an event with its name and its time. key_averages() sums the events by name: how
often it was called, and how long that took in all.

The trap: the first calls are slower, since memory is fetched from the system. So run the program
once before it is measured. And the clock must be one for durations: time.time() jumps when the
system's clock is set.

PyTorch: torch.profiler.profile. Its events are called aten::addmm and the like.

New: FunctionEvent, FunctionEventAvg, profile.
Try: Linear(64, 64) and Linear(64, 1) in place of the two. Which rows change, and how much?
"""

import time

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn


class FunctionEvent:
    """One call of an operation. Times are in microseconds."""

    def __init__(self, name):
        self.key = name
        self.start = time.perf_counter_ns()

    def stop(self):
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000


class FunctionEventAvg:
    """The sums over events of one name."""

    def __init__(self, key, events):
        self.key, self.count = key, len(events)
        self.cpu_time_total = sum(event.cpu_time_total for event in events)


class profile(FunctionMode):
    """`with profile() as prof:` times each operation that the program calls."""

    def __init__(self):
        self.recorded = []  # the events that have ended

    def call(self, function, args):
        event = FunctionEvent(function.__name__)
        result = function.apply(*args)
        event.stop()
        self.recorded.append(event)
        return result

    def key_averages(self):
        """The sums over the events of one name, in the order of their first calls."""
        groups = {}
        for event in self.recorded:
            groups.setdefault(event.key, []).append(event)
        return [FunctionEventAvg(key, events) for key, events in groups.items()]


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(Linear(64, 1024), ReLU(), Linear(1024, 1))
    x = randn(256, 64)

    model(x)  # what is slow only once is done here
    with profile() as prof:
        for _ in range(10):
            model(x)

    for row in prof.key_averages():
        print(f"{row.key:8} {row.count:3} calls {row.cpu_time_total:8.0f} us")
    # -> Addmm     20 calls ... us
    # -> Relu      10 calls ... us

    times = [event.cpu_time_total for event in prof.recorded if event.key == "Addmm"]
    first, second = min(times[0::2]), min(times[1::2])  # the fastest call of each
    print(f"first layer {first:.0f} us, second layer {second:.0f} us")
    # -> first layer ... us, second layer ... us
    print("the first is the slower one:", first > second)  # -> the first is the slower one: True
