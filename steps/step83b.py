"""Step 83b: Total time and self time

Whose Addmm is slow: the encoder's or the decoder's? The table of step 83a knows only operations.
The program knows its parts, and can name them:

    with record_function("encoder"):
        h = encoder(x)

Such a range is an event, too. What Addmm takes is now counted once more as a part of "encoder", so
an event needs two times:

    total = end - start
    self  = total - the totals of the events directly inside it

    encoder   |----------------------------|    total 20, self 20 - 6 - 8 = 6
    Addmm        |------|                       total and self 6
    Relu                     |--------|         total and self 8

The self times add up to the time that has passed. That of a range is Python's own work between the
operations. A stack of the events that have begun knows what lies inside what: one that ends adds
its total to the inner time of the event below it.

The trap is an error between begin and end: its event would stay on the stack, and take all later
ones for its parts. So an event ends in `finally`, and a range in __exit__.

PyTorch: record_function, and the columns "CPU total" and "Self CPU" of its table.

New: record_function, profile.begin and end. Changed: FunctionEvent, FunctionEventAvg, profile.
Try: write 0 for event.cpu_time_total in profile.end. Which lines of the demo change?
"""

import time

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import state
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn


class FunctionEvent:
    """One call of an operation, or one range with a name. Times are in microseconds."""

    def __init__(self, name):
        self.key = name
        self.inner_time = 0.0  # of the events directly inside
        self.start = time.perf_counter_ns()

    def stop(self):
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000
        self.self_cpu_time_total = self.cpu_time_total - self.inner_time


class FunctionEventAvg:
    """The sums over events of one name."""

    def __init__(self, key, events):
        self.key, self.count = key, len(events)
        self.cpu_time_total = sum(event.cpu_time_total for event in events)
        self.self_cpu_time_total = sum(event.self_cpu_time_total for event in events)


class profile(FunctionMode):
    """`with profile() as prof:` times each operation that the program calls."""

    def __init__(self):
        self.stack = []  # the events that have begun, the outermost first
        self.recorded = []  # the events that have ended

    def begin(self, name):
        event = FunctionEvent(name)
        self.stack.append(event)
        return event

    def end(self, event):
        event.stop()
        self.stack.pop()  # it is on top, for all inside it have ended
        if self.stack:
            self.stack[-1].inner_time += event.cpu_time_total
        self.recorded.append(event)

    def call(self, function, args):
        event = self.begin(function.__name__)
        try:
            return function.apply(*args)
        finally:
            self.end(event)

    def key_averages(self):
        """The sums over the events of one name, in the order of their first calls."""
        groups = {}
        for event in self.recorded:
            groups.setdefault(event.key, []).append(event)
        return [FunctionEventAvg(key, events) for key, events in groups.items()]


class record_function:
    """`with record_function("forward"):` gives a part of the program a row of its own."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        # state.modes: what is open on this thread
        profiles = [mode for mode in state.modes if isinstance(mode, profile)]
        self.begun = [(mode, mode.begin(self.name)) for mode in profiles]

    def __exit__(self, *exception):
        for mode, event in self.begun:
            mode.end(event)


if __name__ == "__main__":
    manual_seed(0)
    encoder, decoder = Sequential(Linear(64, 512), ReLU()), Linear(512, 10)
    x = randn(256, 64)
    decoder(encoder(x))

    with profile() as prof:
        with record_function("model"):
            with record_function("encoder"):
                h = encoder(x)
            with record_function("decoder"):
                decoder(h)

    rows = {row.key: row for row in prof.key_averages()}
    for name in ("model", "encoder", "decoder"):
        row = rows[name]
        print(f"{name:8} {row.cpu_time_total:7.0f} us, self {row.self_cpu_time_total:7.0f} us")
    # -> model    ... us, self ... us
    # -> encoder  ... us, self ... us
    # -> decoder  ... us, self ... us

    whole = rows["model"].cpu_time_total
    alone = sum(row.self_cpu_time_total for row in rows.values())
    print("the self times add up to the model's:", abs(alone / whole - 1) < 0.01)
    # -> the self times add up to the model's: True
