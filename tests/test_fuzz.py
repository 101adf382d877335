"""The command `make fuzz`, a little of it."""

import random

import pytest

import tinytorch
from tests import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_files_are_read_or_refused(seed):
    results = fuzz.files(random.Random(seed), 150)
    assert sum(results.values()) == 150 and results["pt refused"] > 25 < results["idx refused"]


def test_killed_saves_leave_whole_files():
    assert fuzz.saves(random.Random(1), 2)["whole files"] == 2


def test_workers_that_stand_still_are_noticed():
    assert fuzz.workers(random.Random(1), 3) == {"stopped": 1, "killed": 1, "asleep": 1}


@pytest.mark.filterwarnings("ignore")
def test_right_arguments_are_right():
    names = fuzz.public_functions()
    assert len(names) > 600
    for name in names:
        fuzz.find(tinytorch, name)(*fuzz.given(tinytorch, fuzz.right_arguments(name)))


def test_wrong_arguments_end_in_errors_of_a_few_kinds():
    results, _ = fuzz.arguments(random.Random(1), 300)
    known = "AttributeError IndexError NotImplementedError OverflowError RuntimeError TypeError"
    known = {*known.split(), "ValueError", "a result"}
    assert sum(results[kind] for kind in known) == 300
    assert {kind for kind in results if kind.istitle()} <= known


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", range(3))
def test_what_should_be_a_tensor_is_named(place):
    """Every public function whose right argument at this place is a tensor, given an object."""
    for name in fuzz.public_functions():
        args = fuzz.right_arguments(name)
        values = fuzz.given(tinytorch, args)
        if place >= len(args) or not isinstance(values[place], tinytorch.Tensor):
            continue
        if place == 0 and name.startswith("Tensor.") or name in TAKES_ANY.get(place, ()):
            continue
        values[place] = object()
        try:
            fuzz.find(tinytorch, name)(*values)
        except (TypeError, RuntimeError):  # RuntimeError: tensor(object()), as in PyTorch
            continue
        except AttributeError:
            assert name in AS_PYTORCH, name
        else:
            raise AssertionError(name)


TAKES_ANY = {0: ("is_tensor",)}
# Functions that PyTorch writes in Python too, where it raises AttributeError itself; and meshgrid,
# whose tensors may come in a list.
AS_PYTORCH = {
    f"nn.functional.{name}"
    for name in "binary_cross_entropy binary_cross_entropy_with_logits dropout1d dropout2d "
    "dropout3d glu local_response_norm margin_ranking_loss softsign tanhshrink".split()
} | {"meshgrid"}
