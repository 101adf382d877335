"""`check --only stable`: `...` stands only for what really varies."""

from steps.companion.checks import check_all
from steps.companion.stability import check_stable

from .conftest import step_text

DEMO = """
import os, sys, time
print("always", 3)  # -> always ...
print(f"{time.perf_counter_ns()} ns")  # -> ... ns
print(hash("text"))  # -> ...
print("threads", os.environ["OMP_NUM_THREADS"])  # -> threads ...
print("here", sys.platform)  # -> here ...
print("[1 ... 2]")  # -> [1 ... 2]
for n in range(4):
    print(n)
    # -> 0
    # -> ...
    # -> 3
"""


def complaints(make, toml="", demo=DEMO):
    curriculum = make({1: step_text(1, "x = 1", demo)}, toml=toml)
    return [str(each) for each in check_stable(curriculum, curriculum.step(1))]


def test_what_is_alike_each_time_can_be_promised(make):
    toml = '[step.1]\nvaries = {"here ..." = "version"}\n'
    always, numbers = complaints(make, toml)
    assert always.startswith("step 01, line 15: prints the same each time: always 3 (promise it")
    assert numbers.startswith("step 01, line 24: prints the same each time: 1 / 2 (promise it, or")


def test_what_is_listed_is_there_and_has_a_reason(make):
    toml = '[step.1]\nvaries = {"one ..." = "time", "two ..." = "luck"}\n'
    gone, reason = complaints(make, toml, 'print("two", 2)  # -> two ...')
    assert "no promise reads 'one ...'" in gone
    assert "'luck' is no reason (write one of time, memory" in reason


def test_a_promise_that_a_hash_seed_breaks(make):
    demo = "print([*{'a', 'b', 'c', 'd', 'e', 'f'}])  # -> ['a', 'b', 'c', 'd', 'e', 'f']"
    first, *_ = complaints(make, demo=demo)
    assert "with hash seed 1, 1 thread:\nstep 01, line " in first and "promised  ['a', 'b'" in first


def test_a_long_line_may_be_shortened(make):
    demo = """
print("a " * 50)  # -> a a ...
print("a " * 50)  # -> ...
print("a " * 20)  # -> a a ...
print("at step01.py:3")  # -> at ...
"""
    bare, short = complaints(make, demo=demo)
    assert "line 15: prints the same" in bare and "line 16: prints the same" in short


def test_it_runs_only_where_it_is_asked_for(make):
    curriculum = make({1: step_text(1, "x = 1", 'print("one")  # -> ...')})
    names = [name for name, *_ in check_all(curriculum, curriculum.steps)]
    assert "stable" not in names
    [(name, size, found)] = check_all(curriculum, curriculum.steps, "stable")
    assert (name, size, len(found)) == ("stable", "1 step", 1)
