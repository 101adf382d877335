"""Step profiler04: The table of a profiler

Step profiler03 prints three numbers of each row, in one order and in one unit. To find what is
slow, you want the most expensive row first, and to see its share without a calculator:

            Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls
     aten::addmm        89.44%     936.100us        89.44%     936.100us      93.610us            10

table() makes it from a list of pairs: a title, and a function that makes the cell of a row. So a
further column will be one more line. The width of a column is that of its longest cell.

Sort by self time to find the operation that is slow, and by total to find the range or layer that
causes it. The percentages are of the sum of the self times, which is the time that passed; those of
the totals add up to more than 100.

The trap is a time without its unit. 936 looks larger than 1.2, even if they are microseconds and
milliseconds. So each cell has a unit: read it before you compare.

(PyTorch prints the same columns, and takes the same arguments.)

New: with_unit, time_text, EventList.table.
Try: sort by "count", and limit the table to one row.
"""

import functools
import importlib
import re
import time
from collections.abc import Callable
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


class profile(FunctionMode):
    """`with profile() as prof:` times each operation that this thread calls.

        with profile() as prof:
            with record_function("forward"):
                loss = model(x).sum()
            loss.backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

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
    model = Sequential(Linear(512, 512), ReLU(), Linear(512, 10))
    x, digits = randn(256, 512), randint(0, 10, (256,))

    with profile() as prof:
        for _ in range(5):
            with record_function("forward"):
                scores = model(x)
            cross_entropy(scores, digits)

    averages = prof.key_averages()
    table = averages.table(sort_by="self_cpu_time_total", row_limit=3)
    print(table)  # -> ...
    lines = table.splitlines()
    print(len(lines), lines[1].split()[:5])  # -> 8 ['Name', 'Self', 'CPU', '%', 'Self']
    print("slow:", lines[3].split()[0])  # -> slow: aten::addmm
    by_total = averages.table(sort_by="cpu_time_total").splitlines()
    print("responsible:", by_total[3].split()[0])  # -> responsible: forward
    print(averages.table().splitlines()[3].split()[0])  # -> forward

    print(time_text(12.5), time_text(12_500), time_text(12_500_000))  # -> 12.500us 12.500ms 12.500s
    print(EventList().table().splitlines()[-1])  # -> Self CPU time total: 0.000us
