"""Step profiler06: Shapes: one row for each size of input

"aten::addmm, 20 calls, 900 us" (step profiler04) hides that one layer takes 30 times as long as the
other, because both have the same name. What tells them apart is the shapes of their arguments.

    aten::addmm    4 calls   [[256, 64], [512, 64], [512]] or [[256, 512], [10, 512], [10]]

record_shapes=True notes the shapes of the arguments in each event, and
key_averages(group_by_input_shape=True) makes a row for each combination of name and shapes. An
argument without a shape, a number for example, is an empty list.

Both are off unless asked for: to note the shapes makes each event slower.

The trap: without group_by_input_shape a row adds up calls of different shapes. It shows none, since
any that it showed would be wrong for some of its calls.

Changed: FunctionEvent, FunctionEventAvg, EventList, profile.
Try: total_average() of the averages by shape. Is it the sum that the averages by name give?
"""

import functools
import importlib
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import NodeMode
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

    def __init__(self, name: str, input_shapes: list):
        self.key = self.name = name
        self.input_shapes = input_shapes
        self.inner_time = 0.0  # of the events inside
        self.start = time.perf_counter_ns()

    def stop(self) -> None:
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000
        self.self_cpu_time_total = self.cpu_time_total - self.inner_time


class FunctionEventAvg:
    """The sums over events of one name."""

    def __init__(self, key: str, input_shapes: list, events: list[FunctionEvent]):
        self.key, self.input_shapes = key, input_shapes
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
        if any(row.input_shapes for row in rows):
            columns.append(("Input Shapes", lambda row: str(row.input_shapes)))
        lines = [[title for title, _ in columns]]
        lines += [[cell(row) for _, cell in columns] for row in rows[:row_limit]]
        widths = [max(12, *map(len, cells)) for cells in zip(*lines, strict=True)]
        head, *body = ("  ".join(map(str.rjust, line, widths)) for line in lines)
        rule = "  ".join("-" * width for width in widths)
        end = f"Self CPU time total: {time_text(whole)}\n"
        return "\n".join([rule, head, rule, *body, rule, end])

    def key_averages(self, group_by_input_shape: bool = False) -> "EventList":
        """The sums over the events of one name, and with equal shapes, if asked for."""
        groups: dict = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else []
            groups.setdefault((event.key, str(shapes)), (shapes, []))[1].append(event)
        return EventList(FunctionEventAvg(key[0], *group) for key, group in groups.items())

    def total_average(self) -> FunctionEventAvg:
        """The sum over all events."""
        return FunctionEventAvg("Total", [], list(self))


@functools.cache
def aten_name(function: str) -> str:
    """LogSoftmax -> aten::log_softmax."""
    return "aten::" + re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", function).lower()


class profile(NodeMode):
    """`with profile() as prof:` times each operation that this thread calls, and each node of its
    backward passes.

        with profile(record_shapes=True) as prof:
            with record_function("forward"):
                loss = model(x).sum()
            loss.backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

    An operation is called aten::mul, its node MulBackward0.
    """

    def __init__(self, *, record_shapes: bool = False):
        self.record_shapes = record_shapes
        self.stack: list[FunctionEvent] = []  # the events that have begun, the outermost first
        self.recorded = EventList()  # those that have ended
        self.complete = EventList()  # the recording that was completed last

    def begin(self, name: str, args: Iterable = ()) -> FunctionEvent:
        shapes = [list(getattr(x, "shape", ())) for x in args] if self.record_shapes else []
        event = FunctionEvent(name, shapes)
        self.stack.append(event)
        return event

    def end(self, event: FunctionEvent) -> None:
        event.stop()
        del self.stack[self.stack.index(event) :]
        if self.stack:
            self.stack[-1].inner_time += event.cpu_time_total
        self.recorded.append(event)

    def call(self, function: type, args: tuple) -> Any:
        event = self.begin(aten_name(function.__name__), args=args)
        try:
            return function.apply(*args)
        finally:
            self.end(event)

    def call_node(self, step: Callable, node: Function, grad: Any, as_tensors: bool) -> tuple:
        event = self.begin(node.name(), args=grad if node.several else (grad,))
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

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        return self.complete.key_averages(group_by_input_shape)


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

    with profile(record_shapes=True) as prof:
        for _ in range(2):
            cross_entropy(model(x), digits).backward()
    for row in prof.key_averages(group_by_input_shape=True):
        if "addmm" in row.key:
            print(row.key, row.count, row.input_shapes, time_text(row.cpu_time))
    # -> aten::addmm 2 [[256, 64], [512, 64], [512]] ...
    # -> aten::addmm 2 [[256, 512], [10, 512], [10]] ...
    print("Input Shapes" in prof.key_averages(group_by_input_shape=True).table())  # -> True
    print("Input Shapes" in prof.key_averages().table())  # -> False
    print(prof.key_averages().total_average().count)  # -> 16
    # A number has no shape.
    with profile(record_shapes=True) as prof:
        x * 2.0
    print(prof.events()[0].input_shapes)  # -> [[256, 64], []]
