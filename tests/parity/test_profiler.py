"""The profiler's names, counts and columns as PyTorch's."""

import re

import pytest

import tinytorch
import tinytorch.profiler

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)


def test_names_and_counts_of_a_program():
    found = []
    for library in (torch, tinytorch):
        x = library.ones(4, 3, requires_grad=True)
        with library.profiler.profile() as forward:
            loss = ((x * x).tanh().exp() - x.relu()).sum()
        with library.profiler.profile() as backward:
            loss.backward()
        rows = [*backward.key_averages(), *forward.key_averages()]
        found.append({row.key: row.count for row in rows})
    theirs, ours = found
    assert len(ours) == 12
    # PyTorch has more rows: of what its operations and nodes call themselves.
    assert {name: theirs.get(name) for name in ours} == ours


def test_columns():
    found = []
    for library in (torch, tinytorch):
        x = library.ones(4, 3)
        with library.profiler.profile(record_shapes=True, profile_memory=True) as prof:
            y = x * x
        del y
        table = prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total")
        found.append(re.split(" {2,}", table.splitlines()[1].strip()))
    assert found[0] == found[1]


@pytest.mark.parametrize("skip_first", [0, 3])
@pytest.mark.parametrize("repeat", [0, 2])
@pytest.mark.parametrize("numbers", [(1, 1, 1), (0, 1, 3), (2, 0, 2)])
@pytest.mark.filterwarnings("ignore:.*warmup")
def test_schedules(numbers, repeat, skip_first):
    plans = []
    for library in (torch, tinytorch):
        wait, warmup, active = numbers
        plan = library.profiler.schedule(
            wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first
        )
        plans.append([plan(step).name for step in range(20)])
    assert plans[0] == plans[1]
