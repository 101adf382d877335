"""Step profiler02: Total and self time in the package's dress: record_function

Step 83b divided time into total and self time. Here a program can name a part of itself, so that it
can be seen whose Addmm took most of the time:

    with record_function("encoder"):
        h = encoder(x)

Such ranges and calls lie inside each other, and share one stack of open events: an event that ends
adds its total to the inner time of the event below it.

The trap is an error between begin and end: an event that never ends would stay on the stack, and
all later ones would count as its parts. So `end` is called in `finally` or in __exit__, and removes
from the stack its own event and all above it.

New: FunctionEvent, record_function. Changed: profile.
Try: write `self.stack.pop()` in place of the line with `del`. The last promise breaks.
"""

import importlib
import time
from typing import Any

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import state
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class FunctionEvent:
    """One call of an operation, or one range with a name.

    Times are in microseconds. What the events inside it took is part of cpu_time_total, and not of
    self_cpu_time_total.
    """

    def __init__(self, name: str):
        self.name = name
        self.inner_time = 0.0  # of the events inside
        self.start = time.perf_counter_ns()

    def stop(self) -> None:
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000
        self.self_cpu_time_total = self.cpu_time_total - self.inner_time


class profile(FunctionMode):
    """`with profile() as prof:` times each operation that this thread calls.

    with profile() as prof:
        with record_function("forward"):
            loss = model(x).sum()
    """

    def __init__(self):
        self.stack: list[FunctionEvent] = []  # the events that have begun, the outermost first
        self.recorded = []  # those that have ended

    def begin(self, name: str) -> FunctionEvent:
        event = FunctionEvent(name)
        self.stack.append(event)
        return event

    def end(self, event: FunctionEvent) -> None:
        event.stop()
        del self.stack[self.stack.index(event) :]
        if self.stack:
            self.stack[-1].inner_time += event.cpu_time_total
        self.recorded.append(event)

    def call(self, function: type, args: tuple) -> Any:
        event = self.begin(function.__name__)
        try:
            return function.apply(*args)
        finally:
            self.end(event)


class record_function:
    """`with record_function("forward"):` the time of a piece of the program gets a row of its own
    in an open profile."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "record_function":
        profiles = [mode for mode in state.modes if isinstance(mode, profile)]
        self.begun = [(mode, mode.begin(self.name)) for mode in profiles]
        return self

    def __exit__(self, *exception: Any) -> None:
        for mode, event in self.begun:
            mode.end(event)


if __name__ == "__main__":
    manual_seed(0)
    encoder, decoder = Sequential(Linear(64, 512), ReLU()), Linear(512, 10)
    x = randn(256, 64)

    with profile() as prof:
        with record_function("model"):
            with record_function("encoder"):
                h = encoder(x)
            with record_function("decoder"):
                decoder(h)

    for event in prof.recorded:  # in the order in which they ended
        print(f"{event.name:8} {event.cpu_time_total:9.1f}, self {event.self_cpu_time_total:.1f}")
    # -> Addmm    ..., self ...
    # -> Relu     ..., self ...
    # -> encoder  ..., self ...
    # -> Addmm    ..., self ...
    # -> decoder  ..., self ...
    # -> model    ..., self ...

    whole = prof.recorded[-1].cpu_time_total
    totals = sum(event.cpu_time_total for event in prof.recorded)
    selves = sum(event.self_cpu_time_total for event in prof.recorded)
    print("the totals add up to too much:", totals > 1.5 * whole)
    # -> the totals add up to too much: True
    print("the self times do not:", abs(selves - whole) < 1e-6 * whole)
    # -> the self times do not: True

    # Without a profiler, a range records nothing.
    with record_function("alone") as alone:
        print(alone.begun)  # -> []

    # An event that was begun and not ended does not disturb the others.
    with profile() as prof:
        with record_function("range"):
            prof.begin("forgotten")
        decoder(h)
    print([event.name for event in prof.recorded], len(prof.stack))
    # -> ['range', 'Addmm'] 0
