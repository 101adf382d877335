"""Step profiler10: A trace: events on a time line

A table adds up, and so it forgets the order: whether the time went in one long call or in a gap
between two, and which call came first. A trace keeps both. Chrome's format for it is JSON, and
simple enough to be written by hand: a list with one entry for each event,

    {"ph": "X", "name": "aten::mul", "ts": 17.5, "dur": 3.2, "pid": 1, "tid": 1, "args": {...}}

"X" is an event with a beginning (ts) and a duration (dur), in microseconds. Entries of one process
and thread (pid, tid) are drawn as bars in one lane, inner events below outer ones. The nesting is
not stored, because it follows from the times.

Open the file at https://ui.perfetto.dev (it stays on your machine), or in chrome://tracing.

A range may also be a function. record_function becomes a decorator: each call is a range of its
own, because a function may call itself.

PyTorch programs say what to measure: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]. Of
work on a GPU, tinytorch measures only the time to start it, and a warning says so.

New: ProfilerActivity, export_chrome_trace. Changed: FunctionEvent, profile, record_function.
Finished: profiler.py.
Try: `python steps/depth/profiler10.py trace.json`, and open the file in Perfetto.
"""

import enum
import functools
import importlib
import json
import os
import pathlib
import re
import threading
import time
import tracemalloc
import warnings
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

    def __init__(self, name: str, category: str, input_shapes: list):
        self.key = self.name = name
        self.category, self.input_shapes = category, input_shapes
        self.thread = threading.get_native_id()
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

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Write a file that ui.perfetto.dev and chrome://tracing show as a picture over time."""
        trace = []
        for event in self:
            args = {"Input Dims": event.input_shapes} if event.input_shapes else {}
            entry = {"ph": "X", "cat": event.category, "name": event.name, "args": args}
            entry |= {"pid": os.getpid(), "tid": event.thread}
            trace.append(entry | {"ts": event.start / 1000, "dur": event.cpu_time_total})
        pathlib.Path(path).write_text(json.dumps({"traceEvents": trace}))


class ProfilerActivity(enum.Enum):
    """What to measure. Of work on a GPU, only the time that the CPU takes to start it is known."""

    CPU = 0
    CUDA = 2


class ProfilerAction(enum.Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARMUP = 1  # measure and forget
    RECORD = 2
    RECORD_AND_SAVE = 3  # the last of the steps that are recorded together


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """What to do in step 0, 1, 2, ...: after `skip_first` steps, wait, warm up and record; and
    again, `repeat` times, or without end for 0.

    Raises:
        AssertionError: a number is negative, or `active` is not positive.
    """
    assert min(wait, warmup, repeat, skip_first) >= 0 < active, (
        "Invalid profiler schedule arguments"
    )

    def action(step: int) -> ProfilerAction:
        cycle, position = divmod(step - skip_first, wait + warmup + active)
        if step < skip_first or position < wait or cycle >= repeat > 0:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


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
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[["profile"], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
    ):
        if ProfilerActivity.CUDA in (activities or ()):
            warnings.warn("only the time of the CPU is measured, not that of the GPU", stacklevel=2)
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.step_num, self.step_event, self.action = 0, None, ProfilerAction.NONE
        self.stack: list[FunctionEvent] = []  # the events that have begun, the outermost first
        self.recorded = EventList()  # those that have ended
        self.complete = EventList()  # the recording that was completed last

    def begin(self, name: str, category: str = "cpu_op", args: Iterable = ()) -> FunctionEvent:
        shapes = [list(getattr(x, "shape", ())) for x in args] if self.record_shapes else []
        event = FunctionEvent(name, category, shapes)
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
            self.step_event = self.begin(f"ProfilerStep#{self.step_num}", "user_annotation")

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

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        self.complete.export_chrome_trace(path)


class record_function:
    """`with record_function("forward"):` or `@record_function("forward")`: the time of a piece of
    the program gets a row of its own in an open profile."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "record_function":
        profiles = [mode for mode in state.modes if isinstance(mode, profile)]
        self.begun = [(mode, mode.begin(self.name, "user_annotation")) for mode in profiles]
        return self

    def __exit__(self, *exception: Any) -> None:
        for mode, event in self.begun:
            mode.end(event)

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with record_function(self.name):  # each call its own: it may be recursive
                return function(*args, **kwargs)

        return call


if __name__ == "__main__":
    import sys
    import tempfile

    manual_seed(0)
    model = Sequential(Linear(64, 128), ReLU(), Linear(128, 10))
    x, digits = randn(32, 64), randint(0, 10, (32,))

    @record_function("training step")
    def train(depth):
        """Calls itself, so that a range lies inside another one of the same name."""
        cross_entropy(model(x), digits).backward()
        if depth:
            train(depth - 1)

    with profile(record_shapes=True, activities=[ProfilerActivity.CPU]) as prof:
        train(1)

    with tempfile.TemporaryDirectory() as folder:
        path = sys.argv[1] if len(sys.argv) > 1 else f"{folder}/trace.json"
        prof.export_chrome_trace(path)
        trace = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    print(len(trace), sorted(trace[0]))
    # -> 18 ['args', 'cat', 'dur', 'name', 'ph', 'pid', 'tid', 'ts']
    first, second, *_ = trace
    print(first["name"], first["cat"], first["args"])  # -> training step user_annotation {}
    print(second["name"], second["cat"], second["args"])
    # -> aten::addmm cpu_op {'Input Dims': [[32, 64], [128, 64], [128]]}
    (begin, end), (b, e) = ((x["ts"], x["ts"] + x["dur"]) for x in (first, second))
    inside = begin <= b <= e <= end
    print("a bar inside a bar:", inside)  # -> a bar inside a bar: True

    # The same as text: one character for 2 % of the time.
    scale = 50 / first["dur"]
    for event in trace[:9]:
        start, length = (event["ts"] - first["ts"]) * scale, max(1, event["dur"] * scale)
        print(f"{event['name']:17} |{' ' * int(start)}{'-' * int(length)}")
    # -> ...

    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1)) as steps:
        train(0)
        steps.step()
    print(steps.events()[0].name, steps.events()[0].category)
    # -> ProfilerStep#0 user_annotation

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        profile(activities=[ProfilerActivity.CUDA])
    print(caught[0].message)  # -> only the time of the CPU is measured, not that of the GPU
