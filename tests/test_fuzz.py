"""The command `make fuzz`, a little of it."""

import random

import pytest

from tests import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_are_read_or_refused(seed):
    results = fuzz.files(random.Random(seed), 150)
    assert sum(results.values()) == 150 and results["pt refused"] > 25 < results["idx refused"]


def test_killed_saves_leave_whole_files():
    assert fuzz.saves(random.Random(1), 2)["whole files"] == 2


def test_workers_that_stand_still_are_noticed():
    assert fuzz.workers(random.Random(1), 3) == {"stopped": 1, "killed": 1, "asleep": 1}


def test_wrong_arguments_end_in_errors_of_a_few_kinds():
    results, _ = fuzz.arguments(random.Random(1), 300)
    assert sum(results.values()) == 300
    known = "AttributeError IndexError OverflowError RuntimeError TypeError ValueError a_result"
    assert set(results) <= {name.replace("_", " ") for name in known.split()}
