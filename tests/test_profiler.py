"""The profiler: what it sees, how times and memory add up, schedules, and traces."""

import json
import threading

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import grad
from tinytorch.autograd.engine import NodeMode
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.state import open_modes, state
from tinytorch.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
)


def names(prof):
    return [event.name for event in prof.events()]


def test_calls_and_nodes_are_events(device):
    x = tinytorch.tensor([1.0, 2.0], device=device, requires_grad=True)
    with profile() as prof:
        (x * x).exp().sum().backward()
    forward = ["aten::mul", "aten::exp", "aten::sum"]
    assert names(prof) == [*forward, "SumBackward0", "ExpBackward0", "MulBackward0"]
    expected = 2 * np.array([1.0, 2.0]) * np.exp([1.0, 4.0])
    np.testing.assert_allclose(x.grad.cpu().numpy(), expected, rtol=1e-6)
    assert state.modes == () and open_modes == []


def test_backward_stays_on_arrays_and_create_graph_is_seen_inside(device):
    x = tinytorch.tensor(3.0, device=device, requires_grad=True)
    with profile() as prof:
        (gx,) = grad(x * x * x, x, create_graph=True)
        assert gx.requires_grad
        (gxx,) = grad(gx, x)
    assert gxx.item() == 18.0
    node = next(event for event in prof.events() if event.name == "MulBackward0")
    assert 0 < node.inner_time < node.cpu_time_total
    inside = [e for e in prof.events() if node.start < e.start < node.start + 1e9]
    assert any(event.name == "aten::mul" for event in inside)


def test_several_outputs_and_broadcast_inputs(device):
    x = tinytorch.tensor([[3.0, 1.0], [2.0, 5.0]], device=device, requires_grad=True)
    with profile(record_shapes=True) as prof:
        values, _ = (x * x[0]).max(1)
        a, b = x.unbind(0)
        (values.sum() + (a * b).sum()).backward()
    plain = x.detach().requires_grad_()
    values, _ = (plain * plain[0]).max(1)
    a, b = plain.unbind(0)
    (values.sum() + (a * b).sum()).backward()
    assert tinytorch.equal(x.grad, plain.grad)
    shapes = {event.name: event.input_shapes for event in prof.events()}
    assert shapes["UnbindBackward0"] == [[2], [2]], shapes


def test_a_node_mode_beside_another_mode_works_on_tensors():
    class Nodes(NodeMode):
        def call_node(self, step, node, g, as_tensors):
            seen.append((node.name(), as_tensors))
            return step(node, g, as_tensors)

    seen = []
    x = tinytorch.tensor(2.0, requires_grad=True)
    with Nodes(), Nodes():
        (x * x).backward()
        assert seen == [("MulBackward0", False)] * 2
        with FunctionMode():
            (x * x).backward()
    assert seen[2:] == [("MulBackward0", True)] * 2
    assert x.grad.item() == 8.0


def test_self_times_add_up_to_the_time_that_passed():
    x = tinytorch.ones(100)
    with profile() as prof, record_function("outer"):
        for _ in range(3):
            with record_function("inner"):
                x * 2.0
            x + 1.0
    outer = next(event for event in prof.events() if event.name == "outer")
    total = prof.events().total_average()
    assert total.self_cpu_time_total == pytest.approx(outer.cpu_time_total)
    assert total.cpu_time_total > outer.cpu_time_total
    rows = {row.key: row for row in prof.key_averages()}
    assert {key: row.count for key, row in rows.items()} == {
        "outer": 1, "inner": 3, "aten::mul": 3, "aten::add": 3
    }  # fmt: skip
    assert rows["inner"].cpu_time == pytest.approx(rows["inner"].cpu_time_total / 3)
    assert rows["inner"].cpu_time_total >= rows["aten::mul"].cpu_time_total


def test_an_error_ends_its_events():
    x = tinytorch.ones(3)
    with profile() as prof:
        with pytest.raises(RuntimeError), record_function("range"):
            x + tinytorch.ones(4)
        x * 2.0
    assert "range" in names(prof) and names(prof)[-1] == "aten::mul"
    assert prof.stack == []
    with pytest.raises(KeyError), profile() as prof:
        raise KeyError
    assert open_modes == [] and state.modes == ()


def test_record_function_as_a_decorator_may_recur():
    @record_function("down")
    def down(n):
        """Counts."""
        return n and down(n - 1)

    assert down.__doc__ == "Counts." and down(2) == 0  # without a profile
    with profile() as prof:
        down(2)
    assert names(prof) == ["down"] * 3
    times = [event.cpu_time_total for event in prof.events()]
    assert times == sorted(times, reverse=True)


def test_two_profiles_see_the_same():
    x = tinytorch.ones(3, requires_grad=True)
    with profile() as first, profile() as second:
        with record_function("range"):
            (x * 2.0).sum().backward()
    assert names(first) == names(second) and len(names(first)) == 5


def test_a_thread_has_its_own():
    x = tinytorch.ones(3)
    with profile() as prof:
        other = threading.Thread(target=lambda: x * 2.0)
        other.start()
        other.join()
    assert names(prof) == []


def test_shapes():
    x = tinytorch.ones(2, 3)
    with profile(record_shapes=True) as prof:
        x * 2.0
        x * x
        x * 3.0
    rows = prof.key_averages(group_by_input_shape=True)
    assert [(row.count, row.input_shapes) for row in rows] == [
        (2, [[2, 3], []]), (1, [[2, 3], [2, 3]])
    ]  # fmt: skip
    assert "Input Shapes" in rows.table()
    assert [row.input_shapes for row in prof.key_averages()] == [[]]
    with profile() as prof:
        x * 2.0
    assert prof.events()[0].input_shapes == []


def test_memory_is_counted():
    x = tinytorch.ones(1000, 100)
    with profile(profile_memory=True) as prof:
        with record_function("kept"):
            y = x * 2.0
        with record_function("freed"):
            x * 2.0
        with record_function("dropped"):
            del y
    size = x.numel() * 4
    used = {event.name: event.cpu_memory_usage for event in prof.events()}
    own = {event.name: event.self_cpu_memory_usage for event in prof.events()}
    assert used["kept"] == pytest.approx(size, abs=20_000)
    assert used["aten::mul"] == pytest.approx(size, abs=20_000)
    assert abs(used["freed"]) < 20_000 and own["freed"] == pytest.approx(-size, abs=20_000)
    assert used["dropped"] == pytest.approx(-size, abs=20_000)
    table = prof.key_averages().table(sort_by="self_cpu_memory_usage")
    assert "Self CPU Mem" in table and "KB" in table


def test_the_table():
    x = tinytorch.ones(10)
    with profile() as prof:
        for _ in range(3):
            x * 2.0
        x.exp()
    table = prof.key_averages().table(sort_by="count")
    lines = table.splitlines()
    assert lines[0] == lines[2] and set(lines[0]) == {"-", " "}
    assert lines[1].split("  ")[-1] == "# of Calls"
    assert lines[3].split()[0] == "aten::mul" and lines[3].split()[-1] == "3"
    assert lines[-1].startswith("Self CPU time total:")
    assert len({len(line) for line in lines[:5]}) == 1
    limited = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=1)
    assert len(limited.splitlines()) == len(lines) - 1
    shares = [float(line.split()[1].rstrip("%")) for line in lines[3:5]]
    assert sum(shares) == pytest.approx(100, abs=0.02)
    with pytest.raises(AttributeError):
        prof.key_averages().table(sort_by="nothing")


def test_a_schedule_is_a_plan():
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    none, warm, record, save = ProfilerAction
    cycle = [none, warm, record, save]
    assert [plan(step) for step in range(12)] == [none, *cycle, *cycle, *[none] * 3]
    for wrong in ({"active": 0}, {"wait": -1}, {"repeat": -1}):
        with pytest.raises(AssertionError):
            schedule(**{"wait": 1, "warmup": 1, "active": 1, **wrong})


def test_a_schedule_at_work():
    x = tinytorch.ones(3)
    ready = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda p: ready.append(names(p))) as prof:
        for step in range(10):
            assert (prof in open_modes) is (plan(step) is not ProfilerAction.NONE)
            x * 2.0
            prof.step()
    first, second = ready
    assert first == ["ProfilerStep#2", "aten::mul", "ProfilerStep#3", "aten::mul"]
    assert second == ["ProfilerStep#6", "aten::mul", "ProfilerStep#7", "aten::mul"]
    assert names(prof) == second and prof.step_num == 10
    assert open_modes == []


def test_without_a_schedule_on_trace_ready_comes_at_the_end():
    ready = []
    with profile(on_trace_ready=ready.append) as prof:
        tinytorch.ones(3) * 2.0
        prof.step()
        assert not ready and names(prof) == []
    assert ready == [prof] and "aten::mul" in names(prof)


def test_closing_keeps_modes_that_were_opened_later():
    inner = FunctionMode()
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1)) as prof, inner:
        prof.step()
        assert state.modes == (inner,)
    assert state.modes == ()


def test_the_trace_is_what_perfetto_reads(tmp_path):
    x = tinytorch.ones(2, 3, requires_grad=True)
    with profile(record_shapes=True) as prof, record_function("step"):
        (x * 2.0).sum().backward()
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [entry["name"] for entry in trace] == names(prof)
    whole = trace[0]
    for entry in trace:
        assert entry["ph"] == "X" and entry["tid"] == whole["tid"]
        assert whole["ts"] <= entry["ts"]
        assert entry["ts"] + entry["dur"] <= whole["ts"] + whole["dur"] + 1e-3
    assert trace[1]["args"] == {"Input Dims": [[2, 3], []]}
    assert {entry["cat"] for entry in trace} == {"user_annotation", "cpu_op"}


def test_the_gpu_is_not_measured():
    with pytest.warns(UserWarning, match="only the time of the CPU"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.raises(TypeError):
        profile(with_stack=True)
