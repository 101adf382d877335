"""PyTorch is the referee of the contract: the demo of a step prints the same on it.

The names of a demo that PyTorch offers are PyTorch's; the programs of the course, like `fit`, are
the step's own. As in the contract, both sides compute in float64 before stage 11, and statements
marked `# here:` are left out. Both draw the same random numbers (`same_draws.py`), so that losses
after a training count, too.

    python -m tests.parity.test_contract_on_torch          all steps, the long ones too: minutes
    python -m tests.parity.test_contract_on_torch 58d      one step
"""

import contextlib
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from steps.companion.contract import TIMEOUT, TYPES, covered, differing, without_marked  # noqa: E402
from steps.companion.curriculum import Curriculum  # noqa: E402
from steps.companion.processes import one_thread  # noqa: E402
from steps.companion.source import Source  # noqa: E402
from tests.contract_twins import TWINS, broken  # noqa: E402
from tests.parity.same_draws import demo  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = Curriculum(ROOT)
STEPS = {str(step.number): step for step in covered(CURRICULUM, CURRICULUM.steps)}

# Each step of the contract is in one of these three. The tests run the first and the last.
REFEREED = """
    41a 41b 41c 42 43 44 45a 45b 45c 45d 46a 46b 47a 47b 48a 48b 48c 49
    50a 50b 50c 50d 52a 52b 54a
    55a 56a 56b 56c 56d 57b 58a 58b 58c 60a 60b 60c
    61b 61e 62b 64a 65b 65c 66a 66b 66c 66d 67a 67b 67c 68a 68b 68c
    83b 83c 84b 85a 85b 85c 85d 86c 86d
    80a 80b 80c 80d 80e 80f 81a 81b 81c 82b 82c 82d 82e
    94a 94b 94c 94d 94e 95a 95b 95d 95f 96a 97a 97b 98a
    75a 75b 75c 75d 76a 76b 77a 77b 77c 77e 78a 78b 78c
    69a 69b 69c 69d 69e 70a 70b 70c 70d 71 72a 72b 72c 72d 72e 72f 72g 74a 74b 74c 74d
""".split()
LONG = {  # what they do
    "51": "a network of rows and one of convolutions",
    "52c": "six networks, of up to 30 layers",
    "53a": "a network, on moved digits",
    "53b": "networks of rows and of convolutions, on moved digits",
    "54b": "an autoencoder, for 40 epochs",
    "55b": "a network of eight letters, for 4,000 batches",
    "56e": "an LSTM that writes",
    "57a": "attention, and an RNN at two rates",
    "57c": "one head and four, at two rates each",
    "57d": "attention with and without positions",
    "58d": "a GPT, for 1,000 batches",
    "59a": "two GPTs",
    "59b": "a GPT, for 500 batches",
    "59c": "a GPT of pieces of words, for 700 batches",
    "98b": "a GPT, by one rank and by two",
    "88a": "torch.compile writes C++, for half a minute",
    "88b": "the same",
    "89a": "the same",
    "89b": "the same",
    "89c": "the same",
    "89d": "the same",
    "89e": "the same",
    "89f": "the same",
    "89g": "the same",
    "89h": "the same",
    "90a": "the same",
    "90b": "the same",
    "90c": "the same",
    "91c": "the same",
    "91d": "the same",
    "91e": "the same",
    "91f": "the same",
    "91g": "the same",
    "92b": "the same",
    "93b": "the same",
    "93c": "the same",
}
UNLIKE = {  # what PyTorch does otherwise
    "61a": "a dtype has no name",
    "61c": "a dtype has no name",
    "61d": "a dtype has no name",
    "61f": "a dtype has no name",
    "62a": "as_tensor takes the dtype by keyword only",
    "86a": "its counter stands on our modes; PyTorch's own counts the same",
    "65a": "grad returns an expanded tensor for a sum, which cannot be written",
    "79a": "array libraries are not registered",
    "79b": "the same",
    "82a": "the same",
    "95c": "it does not count messages",
    "95e": "it does not count messages",
    "96c": "a Function has other forms of forward and backward",
    "78d": "after 1,300 steps in float32 some pixels have another shade",
}

# The line of a step that begins so is left out.
DIFFERENT = {
    "45a": "the same:",  # to the last bit: PyTorch's SGD rounds p - lr * g once, a loop twice
    "66c": "result type",  # the message calls float32 Float
}


@contextlib.contextmanager
def two_processes():
    """Runs two demos at a time, each in a fork of a process that has imported PyTorch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.same_draws"])
    pool = ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1)
    with pytest.MonkeyPatch.context() as patch, pool:
        for name, value in (one_thread() | {"PYTHONPATH": str(ROOT)}).items():
            patch.setenv(name, value)
        yield pool


@pytest.fixture(scope="module")
def pool():
    if "forkserver" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    with two_processes() as pool:
        yield pool


def complaints(pool, number, source=None):
    """What the demo of a step does otherwise on PyTorch. `source` stands in for the step's file."""
    step, own = STEPS[number], CURRICULUM.contract["own"]
    text, _ = without_marked(source or step.source)
    double = step.stage.number < TYPES
    runs = [
        pool.submit(demo, str(step.path), text, own, library, double) for library in ("", "torch")
    ]
    ours, theirs = (each.result(TIMEOUT) for each in runs)
    if ours.failed or theirs.failed:
        return [f"the file: {ours.failed or 'runs'}; PyTorch: {theirs.failed or 'runs'}"]
    if number in DIFFERENT:
        for run in (ours, theirs):
            run.lines = [line for line in run.lines if not line.startswith(DIFFERENT[number])]
    return differing(ours.lines, theirs.lines) if ours.lines else ["prints nothing"]


@pytest.mark.parametrize("number", REFEREED)
def test_a_demo_prints_the_same_on_pytorch(pool, number):
    assert complaints(pool, number) == []


def test_each_step_is_refereed_or_has_a_reason():
    assert sorted([*REFEREED, *LONG, *UNLIKE]) == sorted(STEPS)
    assert all(LONG.values()) and all(UNLIKE.values()) and DIFFERENT.keys() <= STEPS.keys()


@pytest.mark.parametrize("number", UNLIKE)
def test_pytorch_does_otherwise_where_the_table_says_so(pool, number):
    assert complaints(pool, number)


@pytest.mark.parametrize("number", ["41b", "45b", "58a"])
def test_pytorch_sees_a_broken_twin(pool, number):
    """Both sides get the file with the mistake: PyTorch takes no definition from it."""
    twins = [twin for twin in TWINS if twin.step == number][:2]
    assert twins
    for twin in twins:
        step = STEPS[number]
        assert complaints(pool, number, Source(step.path, text=broken(step.source, twin))), twin


def test_numbers_that_only_pytorch_draws_are_noticed(pool):
    for call, failed in (
        ("uniform_()", ""),
        ("bernoulli_()", "PyTorch has drawn numbers of its own"),
    ):
        text = f'if __name__ == "__main__":\n    print(len(zeros(3).{call}))\n'
        run = pool.submit(demo, "step.py", text, [], "torch").result(TIMEOUT)
        assert (run.lines, run.failed) == (["3"], failed)


def main(numbers):
    different = 0
    with two_processes() as pool:
        for number in numbers or [*REFEREED, *LONG]:
            found = complaints(pool, number)
            print(f"step {number:4}", *found or ["the same"], flush=True)
            different += bool(found)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
