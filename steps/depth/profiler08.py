"""Step profiler08: Profiling a few steps of a training

A training takes hours. To profile all of it would fill the memory with events, and its first steps
are not like the others. A few steps from the middle are enough, and perhaps a few more later on.
So the program gives the profiler a schedule, a function from the number of a step to an action,

    NONE             the profiler is not an open mode: training runs as without it
    WARMUP           measure, and discard
    RECORD           measure, and keep
    RECORD_AND_SAVE  the same for the last time, then call on_trace_ready(prof)

and calls `prof.step()` after each step. change() switches from one action to the next. Each step is
an event too, ProfilerStep#3, with all others of the step inside it.

There are two traps. Without prof.step() nothing ever changes, and the profiler waits. And a range
may be open when the recording begins. Its start was not recorded, so `end` must not expect it on
the stack.

New: ProfilerAction, profile.change, profile.step. Changed: profile.
Try: leave the test `if event in self.stack` out. Which range raises the error?
"""

import enum
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
from tinytorch.core.state import open_modes, state
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


class ProfilerAction(enum.Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARMUP = 1  # measure and forget
    RECORD = 2
    RECORD_AND_SAVE = 3  # the last of the steps that are recorded together


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

    An operation is called aten::mul, its node MulBackward0. With a `schedule`, call step() after
    each step of the training; on_trace_ready(prof) is called whenever the recorded steps are
    complete. Without one, everything is recorded, and on_trace_ready called at the end.

    profile_memory counts what a call allocated less what it freed, with tracemalloc: memory of the
    CPU, Python's own objects included. It makes the times longer.
    """

    def __init__(
        self,
        *,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[["profile"], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
    ):
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.step_num, self.step_event, self.action = 0, None, ProfilerAction.NONE
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
        if event in self.stack:  # it is not if it began before the recording
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

    def change(self, action: ProfilerAction) -> None:
        """Go over to `action`. A profiler that does nothing is not among the open modes."""
        if self.step_event is not None:
            self.end(self.step_event)
        before, nothing = self.action, ProfilerAction.NONE
        if before is not nothing and action is nothing:
            state.modes = tuple(mode for mode in state.modes if mode is not self)
            open_modes.remove(self)
        self.action, self.step_event = action, None
        recorded = before in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        ready = before is ProfilerAction.RECORD_AND_SAVE or (recorded and action is nothing)
        if ready:
            self.complete = EventList(sorted(self.recorded, key=lambda event: event.start))
        if ready or not recorded:
            self.stack, self.recorded = [], EventList()
        if ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        if before is nothing and action is not nothing:
            NodeMode.__enter__(self)
        if self.schedule is not None and action is not nothing:
            self.step_event = self.begin(f"ProfilerStep#{self.step_num}")

    def step(self) -> None:
        """Say that a step of the training has ended; the schedule decides what the next is."""
        self.step_num += 1
        if self.schedule is not None:
            self.change(self.schedule(self.step_num))

    def __enter__(self) -> "profile":
        self.starts_tracing = self.profile_memory and not tracemalloc.is_tracing()
        if self.starts_tracing:
            tracemalloc.start()
        self.change(ProfilerAction.RECORD if self.schedule is None else self.schedule(0))
        return self

    def __exit__(self, *exception: Any) -> None:
        self.change(ProfilerAction.NONE)
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
    model = Sequential(Linear(64, 128), ReLU(), Linear(128, 10))
    x, digits = randn(32, 64), randint(0, 10, (32,))

    def third_and_fourth(step):
        """NONE, NONE, WARMUP, RECORD, RECORD_AND_SAVE, NONE, ..."""
        if step < 5:
            return list(ProfilerAction)[max(step - 1, 0)]
        return ProfilerAction.NONE

    print([third_and_fourth(step).name for step in range(6)])
    # -> ['NONE', 'NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']

    reports = []

    def report(prof):
        names = [event.name for event in prof.events()]
        steps = [name for name in names if name.startswith("ProfilerStep")]
        reports.append((prof.step_num, steps, names.count("aten::relu")))

    with profile(schedule=third_and_fourth, on_trace_ready=report) as prof:
        print(state.modes, open_modes)  # -> () []
        for _ in range(10):
            cross_entropy(model(x), digits).backward()
            prof.step()
    print(reports.pop())  # -> (5, ['ProfilerStep#3', 'ProfilerStep#4'], 2)

    # A program that ends before its recording does gets what there is.
    with profile(schedule=third_and_fourth, on_trace_ready=report) as prof:
        for _ in range(3):
            model(x)
            prof.step()
        model(x)
    print(reports.pop())  # -> (3, ['ProfilerStep#3'], 1)

    # A range that begins before the recording, and ends in it.
    with profile(schedule=lambda step: list(ProfilerAction)[step + 1]) as prof:
        with record_function("too early"):
            prof.step()
    print([event.name for event in prof.events()])  # -> ['ProfilerStep#1']

    # Without a schedule, all is recorded; step() only counts.
    with profile(on_trace_ready=report) as prof:
        model(x)
        prof.step()
    print(reports.pop())  # -> (1, [], 1)
