"""Step profiler07: Memory: which call allocates it

A model that does not fit asks another question than that of step profiler01: not which call takes
the time, but which call takes the memory.

profile_memory=True counts bytes. Python's module tracemalloc counts all that is allocated and not
yet freed, and NumPy reports its arrays to it. An event reads it at both ends, as it reads the
clock, and the difference is treated in the same way:

    total = after - before,      self = total - the totals of the events inside

So memory may be negative: an event freed more than it took. Most nodes of the backward pass free
what their call has saved, but only after their event has ended, so this memory is in the row of the
range around them.

The trap: tracemalloc notes where each piece of memory was allocated, which takes time. Measure time
and memory in two runs.

New: memory_text. Changed: FunctionEvent, FunctionEventAvg, EventList, profile.
Try: profile with profile_memory=True and without it. How much longer does aten::relu take?
"""

import functools
import importlib
import re
import time
import tracemalloc
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
MEMORY = ("cpu_memory_usage", "self_cpu_memory_usage")


class FunctionEvent:
    """One call of an operation, one node of a backward pass, or one range with a name.

    Times are in microseconds, memory in bytes. What the events inside it took is part of the
    totals, and not of self_cpu_time_total and self_cpu_memory_usage.
    """

    count = 1

    def __init__(self, name: str, input_shapes: list):
        self.key = self.name = name
        self.input_shapes = input_shapes
        self.inner_time = self.inner_memory = 0.0  # of the events inside
        self.memory = tracemalloc.get_traced_memory()[0]  # 0 while tracemalloc does not run
        self.start = time.perf_counter_ns()

    def stop(self) -> None:
        self.cpu_time_total = (time.perf_counter_ns() - self.start) / 1000
        self.cpu_memory_usage = tracemalloc.get_traced_memory()[0] - self.memory
        self.self_cpu_time_total = self.cpu_time_total - self.inner_time
        self.self_cpu_memory_usage = self.cpu_memory_usage - self.inner_memory


class FunctionEventAvg:
    """The sums over events of one name."""

    def __init__(self, key: str, input_shapes: list, events: list[FunctionEvent]):
        self.key, self.input_shapes = key, input_shapes
        for name in (*TIMES, *MEMORY):
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


def memory_text(size: float) -> str:
    return with_unit(size, {" GB": 1 << 30, " MB": 1 << 20, " KB": 1 << 10, " B": 1}, 2)


class EventList(list):
    """Events, or their sums by name."""

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """One row for each, the largest `sort_by` first: "count", "cpu_time_total",
        "self_cpu_time_total", "cpu_memory_usage", ...

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
        ]
        if any(row.cpu_memory_usage for row in rows):
            columns.append(("CPU Mem", lambda row: memory_text(row.cpu_memory_usage)))
            columns.append(("Self CPU Mem", lambda row: memory_text(row.self_cpu_memory_usage)))
        columns.append(("# of Calls", lambda row: str(row.count)))
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

    profile_memory counts what a call allocated less what it freed, with tracemalloc: memory of the
    CPU, Python's own objects included. It makes the times longer.
    """

    def __init__(self, *, record_shapes: bool = False, profile_memory: bool = False):
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
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
            self.stack[-1].inner_memory += event.cpu_memory_usage
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

    def __enter__(self) -> "profile":
        self.starts_tracing = self.profile_memory and not tracemalloc.is_tracing()
        if self.starts_tracing:
            tracemalloc.start()
        return NodeMode.__enter__(self)

    def __exit__(self, *exception: Any) -> None:
        NodeMode.__exit__(self)
        self.complete = EventList(sorted(self.recorded, key=lambda event: event.start))
        if self.starts_tracing:
            tracemalloc.stop()

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

    with profile(profile_memory=True) as prof:
        with record_function("forward"):
            loss = cross_entropy(model(x), digits)
        with record_function("backward"):
            loss.backward()
    print(prof.key_averages().table(sort_by="cpu_memory_usage"))  # -> ...

    memory = {row.key: row.cpu_memory_usage for row in prof.key_averages()}
    hidden = 256 * 512 * 4  # bytes
    print(f"one hidden layer takes {memory_text(hidden)}")  # -> one hidden layer takes 512.00 KB
    print(f"relu: {memory['aten::relu'] / hidden:.1f} of that")  # -> relu: 1.0 of that
    print("backward frees:", memory["backward"] < 0)  # -> backward frees: True
    print(tracemalloc.is_tracing())  # -> False

    print(prof.key_averages().total_average().count)  # -> 10

    # Without profile_memory, nothing is counted, and it costs nothing.
    with profile() as prof:
        model(x)
    print("CPU Mem" in prof.key_averages().table())  # -> False
