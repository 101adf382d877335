"""Step profiler05: The backward pass, node by node

The profiler of step profiler04 is of little use for training. While its mode is open, backward()
works on Tensors for it (step 65d): the table gains rows, aten::mul and aten::sum, but they do
not say which layer they belong to. And the profiler changes what it measures: the demo's backward
pass takes several times as long as without the profiler.

So the profiler becomes a NodeMode (step engine08). Backward stays on arrays, and each of its nodes
is an event with PyTorch's name:

    aten::mul       a call in the forward pass
    MulBackward0    its node in the backward pass

With create_graph=True the gradients are Tensors, and each call of an operation in backward is an
event inside the event of its node.

The profiler itself still takes time: two readings of the clock and one object for each event, 3 to
10 us depending on the machine. The demo measures it. An operation of 10 elements seems to be slower
than it is, one of a million does not: look at large numbers first.

Changed: profile.
Try: open a FunctionMode around the profile. What does it see, and what happens to the nodes?
"""

import functools
import importlib
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import NodeMode
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function
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
    """One call of an operation, one node of a backward pass, or one range with a name.

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


def with_unit(value: float, units: dict[str, int], digits: int) -> str:
    """1234.5 -> "1.234ms", with the largest unit that the value reaches."""
    unit, size = next((x for x in units.items() if abs(value) >= x[1]), [*units.items()][-1])
    return f"{value / size:.{digits}f}{unit}"


def time_text(microseconds: float) -> str:
    return with_unit(microseconds, {"s": 10**6, "ms": 10**3, "us": 1}, 3)


class EventList(list):
    """Events, or their sums by name."""

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """One row for each, the largest `sort_by` first: "count", "cpu_time_total",
        "self_cpu_time_total", ...

        Raises:
            AttributeError: there is nothing of the name `sort_by`.
        """
        rows = sorted(self, key=lambda row: -getattr(row, sort_by)) if sort_by else self
        whole = sum(row.self_cpu_time_total for row in rows)
        columns: list[tuple[str, Callable]] = [
            ("Name", lambda row: row.key),
            ("Self CPU %", lambda row: f"{100 * row.self_cpu_time_total / whole:.2f}%"),
            ("Self CPU", lambda row: time_text(row.self_cpu_time_total)),
            ("CPU total %", lambda row: f"{100 * row.cpu_time_total / whole:.2f}%"),
            ("CPU total", lambda row: time_text(row.cpu_time_total)),
            ("CPU time avg", lambda row: time_text(row.cpu_time_total / row.count)),
            ("# of Calls", lambda row: str(row.count)),
        ]
        lines = [[title for title, _ in columns]]
        lines += [[cell(row) for _, cell in columns] for row in rows[:row_limit]]
        widths = [max(12, *map(len, cells)) for cells in zip(*lines, strict=True)]
        head, *body = ("  ".join(map(str.rjust, line, widths)) for line in lines)
        rule = "  ".join("-" * width for width in widths)
        end = f"Self CPU time total: {time_text(whole)}\n"
        return "\n".join([rule, head, rule, *body, rule, end])

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


class profile(NodeMode):
    """`with profile() as prof:` times each operation that this thread calls, and each node of its
    backward passes.

        with profile() as prof:
            with record_function("forward"):
                loss = model(x).sum()
            loss.backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

    An operation is called aten::mul, its node MulBackward0.
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

    def call_node(self, step: Callable, node: Function, grad: Any, as_tensors: bool) -> tuple:
        event = self.begin(node.name())
        try:
            return step(node, grad, as_tensors)
        finally:
            self.end(event)

    def __exit__(self, *exception: Any) -> None:
        NodeMode.__exit__(self)
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
        loss = cross_entropy(model(x), digits)
        loss.backward()
    for event in prof.events():
        print(f"{event.name:17} {time_text(event.cpu_time_total)}")
    # -> aten::addmm       ...
    # -> aten::relu        ...
    # -> aten::addmm       ...
    # -> aten::nll_loss    ...
    # -> NllLossBackward0  ...
    # -> AddmmBackward0    ...
    # -> ReluBackward0     ...
    # -> AddmmBackward0    ...

    # The product and the sum of a second derivative lie inside the node.
    y = randn(3, requires_grad=True)
    with profile() as prof:
        (y * y).sum().backward(create_graph=True)
    node = next(event for event in prof.events() if event.name == "MulBackward0")
    print(node.inner_time > 0, node.self_cpu_time_total < node.cpu_time_total)  # -> True True

    # What does it cost? A chain of 300 small operations, forward and backward.
    def seconds(mode):
        with mode:
            start = time.perf_counter()
            z = y
            for _ in range(300):
                z = z * 1.0
            z.sum().backward()
            return time.perf_counter() - start

    plain = min(seconds(nullcontext()) for _ in range(5))
    for kind in (profile, FunctionMode):
        measured = min(seconds(kind()) for _ in range(5))
        extra = (measured - plain) / 600 * 1e6
        print(f"{kind.__name__}: {measured / plain:.1f} times, {extra:.1f} us for each event")
    # -> profile: ... times, ... us for each event
    # -> FunctionMode: ... times, ... us for each event
