"""Step 83c: Where the time of a training step goes

Which part of a training step should be made faster: forward, backward, or the update? The profiler
of step 83b sees what backward calls, but not for whom: a Mul there may belong to any layer. And it
changes what it measures: while a mode is open, backward works on Tensors, so that the mode sees its
calls (step 65d).

So the finished engine has a second kind of mode. A NodeMode stands around each node of backward,
and the gradients stay arrays:

    call_node(step, node, grad, as_tensors)       step(node, grad, as_tensors) does the work

Each node is an event, with the name of a printed grad_fn: ConvolutionBackward0.

No row of the demo has more than about a quarter of the time, and that limits what can be gained
there. If a part with the share p becomes s times as fast, the whole becomes 1 / (1 - p + p / s)
times as fast: a quarter, twice as fast, gives 1.14, and never more than 1.33. This is Amdahl's law.

The trap: an event takes some microseconds itself, so small operations seem slower than they are.

PyTorch: prof.key_averages().table(sort_by="self_cpu_time_total"); ours too, finished.

Changed: profile. New: profile.call_node.
Try: a batch of 2 images instead of 64. Whose self time is at the top now?

In depth: profiler01 to profiler10.
"""

import time

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import NodeMode
from tinytorch.core.state import state
from tinytorch.nn.functional import cross_entropy
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.conv import Conv2d
from tinytorch.nn.modules.flatten import Flatten
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.pooling import MaxPool2d
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.adam import Adam


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


class profile(NodeMode):
    """`with profile() as prof:` times each operation, and each node of a backward pass."""

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

    def call_node(self, step, node, grad, as_tensors):
        event = self.begin(node.name())
        try:
            return step(node, grad, as_tensors)
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
    model = Sequential(
        Conv2d(1, 16, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(3136, 10)
    )
    optimizer = Adam(model.parameters())
    x, t = randn(64, 1, 28, 28), randint(0, 10, (64,))

    def step():
        with record_function("forward"):
            loss = cross_entropy(model(x), t)
        optimizer.zero_grad()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()

    step()
    with profile() as prof:
        for _ in range(5):
            step()

    rows = {row.key: row for row in prof.key_averages()}
    for name in ("forward", "backward", "optimizer"):
        print(f"{name:9} {rows[name].count} times, {rows[name].cpu_time_total / 5000:.1f} ms each")
    # -> forward   5 times, ... ms each
    # -> backward  5 times, ... ms each
    # -> optimizer 5 times, ... ms each

    whole = sum(row.self_cpu_time_total for row in rows.values())
    ranked = sorted(rows.values(), key=lambda row: -row.self_cpu_time_total)
    for row in ranked[:6]:  # here: operations have other names
        share = row.self_cpu_time_total / whole
        print(f"{row.key:22} {100 * share:4.0f} % {'*' * round(50 * share)}")
    # -> ...
