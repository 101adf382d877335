"""Step profiler03: Averages: the calls of one name together

A training step of a small network makes hundreds of calls. A list of them, as in step profiler02,
is too long to read. What matters is how often each operation was called, and its time in all:

    events       addmm 6.1, relu 0.5, addmm 2.2, addmm 6.0, relu 0.4, addmm 2.0
    averages     addmm 4 calls, 16.3      relu 2 calls, 0.9

key_averages() puts the events of one name together and adds up their times. The result has the same
attributes as an event, so it can be added up again: total_average() works for both.

The events are sorted by their beginnings first. They were noted when they ended, the inner ones
before the outer ones; in the table they should have the order of the program.

The names are PyTorch's, where they follow from the name of the Function: LogSoftmax becomes
aten::log_softmax ("a tensor library" is the part of PyTorch that computes). A name is computed once
for each Function, and kept: a regular expression takes longer than a small operation.

The trap: add up self times. The totals of nested events count the inner ones again (step
profiler02).

New: FunctionEventAvg, EventList, aten_name, TIMES. Changed: FunctionEvent, profile.
Try: leave the sorting out. Which row comes first?
"""

import functools
import importlib
import re
import time
from typing import Any

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import state
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed, randint, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


TIMES = ("count", "cpu_time_total", "self_cpu_time_total")


class FunctionEvent:
    """One call of an operation, or one range with a name.

    Times are in microseconds. What the events inside it took is part of cpu_time_total, and not of
    self_cpu_time_total.
    """

    count = 1

    def __init__(self, name: str):
        self.key = self.name = name
        self.inner_time = 0.0  # of the events inside
        self.start = time.perf_counter_ns()

    def stop(self) -> None:
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000
        self.self_cpu_time_total = self.cpu_time_total - self.inner_time


class FunctionEventAvg:
    """The sums over events of one name."""

    def __init__(self, key: str, events: list[FunctionEvent]):
        self.key = key
        for name in TIMES:
            setattr(self, name, sum(getattr(event, name) for event in events))

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / max(self.count, 1)


class EventList(list):
    """Events, or their sums by name."""

    def key_averages(self) -> "EventList":
        """The sums over the events of one name."""
        groups: dict = {}
        for event in self:
            groups.setdefault(event.key, []).append(event)
        return EventList(FunctionEventAvg(key, group) for key, group in groups.items())

    def total_average(self) -> FunctionEventAvg:
        """The sum over all events."""
        return FunctionEventAvg("Total", list(self))


@functools.cache
def aten_name(function: str) -> str:
    """LogSoftmax -> aten::log_softmax."""
    return "aten::" + re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", function).lower()


class profile(FunctionMode):
    """`with profile() as prof:` times each operation that this thread calls.

        with profile() as prof:
            with record_function("forward"):
                loss = model(x).sum()
            loss.backward()
        for row in prof.key_averages():
            print(row.key, row.count, row.self_cpu_time_total)

    An operation is called aten::mul.
    """

    def __init__(self):
        self.stack: list[FunctionEvent] = []  # the events that have begun, the outermost first
        self.recorded = EventList()  # those that have ended
        self.complete = EventList()  # the recording that was completed last

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
        event = self.begin(aten_name(function.__name__))
        try:
            return function.apply(*args)
        finally:
            self.end(event)

    def __exit__(self, *exception: Any) -> None:
        FunctionMode.__exit__(self)
        self.complete = EventList(sorted(self.recorded, key=lambda event: event.start))

    def events(self) -> EventList:
        """The recorded events in the order of their beginnings, once the recording is complete."""
        return self.complete

    def key_averages(self) -> EventList:
        return self.complete.key_averages()


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
    model = Sequential(Linear(64, 512), ReLU(), Linear(512, 10))
    x, digits = randn(256, 64), randint(0, 10, (256,))

    with profile() as prof:
        for _ in range(5):
            with record_function("forward"):
                scores = model(x)
            cross_entropy(scores, digits)
    print(len(prof.events()), "events")  # -> 25 events

    averages = prof.key_averages()
    for row in averages:
        print(f"{row.key:14} {row.count:3} calls, {row.cpu_time:.1f} us each")
    # -> forward          5 calls, ... us each
    # -> aten::addmm     10 calls, ... us each
    # -> aten::relu       5 calls, ... us each
    # -> aten::nll_loss   5 calls, ... us each

    whole = averages.total_average()
    outer = [event for event in prof.events() if event.name in ("forward", "aten::nll_loss")]
    passed = sum(event.cpu_time_total for event in outer)  # the time that passed
    print(whole.count, prof.events().total_average().count)  # -> 25 25
    print("the self times are that:", abs(whole.self_cpu_time_total - passed) < 0.01)
    # -> the self times are that: True
    print("the totals are more:", whole.cpu_time_total > passed)
    # -> the totals are more: True

    print(aten_name("LogSoftmax"))  # -> aten::log_softmax
