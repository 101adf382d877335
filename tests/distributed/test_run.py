"""The launcher, and how jobs end: with tracebacks, soon, and with no process left."""

import contextlib
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.distributed.helpers import ROOT, launch, mpiexec, needs_mpi, start

JOB = "tests/distributed/jobs.py"


def processes_with(mark):
    """How many processes of this machine have the text in their command line."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found += mark in path.read_bytes().decode(errors="replace")
    return found


@needs_mpi
def test_a_program_for_torchrun_finds_its_names():
    code, printed = launch(2, "--standalone", "--master_port=1234", JOB, "names", "--lr=0.1")
    assert code == 0, printed
    for rank in "01":
        names = [rank, rank, "2", "2", "127.0.0.1", "1234"]
        assert f"{names} ['names', '--lr=0.1'] __main__" in printed
    code, printed = launch(2, "-m", "tests.distributed.jobs", "names", MASTER_PORT="1")
    assert code == 0 and printed.count("'29500'") == 2, printed


@needs_mpi
@pytest.mark.parametrize(
    "launcher, way, expected",
    [
        (mpiexec, "raise", ["rank 1 of 2 has failed:", 'raise KeyError("lost")', "'lost'"]),
        (mpiexec, "kill", ["KILLED BY SIGNAL: 9|EXIT CODE: 9"]),
        (launch, "raise", ["rank 1", "KeyError: 'lost'", 'raise KeyError("lost")']),
        (launch, "skip", ["DistBackendError: rank 0, all_reduce: timed out after 1.5 s"]),
        (
            launch,
            "shape",
            ["rank 0 calls broadcast of float32 (3,) root 0, rank 1 calls broadcast of float32 (4"],
        ),
        (launch, "caught", ["caught: rank 0, barrier: timed out after 1.5 s"]),
        (launch, "kill", ["KILLED BY SIGNAL: 9|EXIT CODE: 9", "it goes well\n"]),
        (launch, "exit", ["rank 1 has ended: 3"]),
        (launch, "leave", ["rank 0, all_reduce: rank 1 has ended without making this call"]),
        (mpiexec, "leave", ["rank 0, all_reduce: rank 1 has ended without making this call"]),
        (launch, "end", ["rank 0, all_reduce: rank 1 has ended without making this call"]),
        (mpiexec, "end", ["rank 0, all_reduce: rank 1 has ended without making this call"]),
        (launch, "nothing", ["rank 0, barrier: rank 1 has ended without making this call"]),
        (launch, "dtype", ["rank 1 calls all_reduce of int32 (1,) SUM"]),
        (launch, "op", ["rank 1 calls all_reduce of float32 (1,) MAX"]),
        (launch, "before", ["rank 1 has failed:\nTraceback", "KeyError: 'too early'"]),
    ],
)
def test_a_rank_that_fails_ends_the_job(launcher, way, expected):
    mark = str(uuid.uuid4())
    begun = time.monotonic()
    code, printed = launcher(2, JOB, way, mark, timeout=30, PYTHONUNBUFFERED="")
    assert code != 0, printed
    for text in expected:
        assert any(each in printed for each in text.split("|")), printed
    assert time.monotonic() - begun < 20
    until = time.monotonic() + 5
    while processes_with(mark):
        assert time.monotonic() < until, "a process is left"
        time.sleep(0.1)


@needs_mpi
def test_a_rank_may_end_early_when_it_has_done_its_part():
    code, printed = launch(3, JOB, "late", timeout=30)
    assert code == 0, printed


@needs_mpi
def test_one_process_needs_no_mpiexec():
    code, printed = start(sys.executable, JOB, "names", RANK="0", WORLD_SIZE="1")
    assert "KeyError: 'LOCAL_RANK'" in printed and code == 1  # it is not a launcher's child
    code, printed = start(sys.executable, JOB, "none")
    assert code == 0, printed
    code, printed = start(sys.executable, JOB, "none", WORLD_SIZE="2")
    assert code == 1 and "world_size is 2, but MPI says 1" in printed


def test_wrong_options_are_refused():
    for option in ("--nproc_per_node=none", "--nnodes=2"):
        command = (sys.executable, "-m", "tinytorch.distributed.run", option, JOB)
        code, printed = start(*command)
        assert code == 2 and option.split("=")[0].replace("_", "-") in printed


def test_without_mpi4py_an_error_names_the_extra():
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "import tinytorch.distributed as dist, tinytorch.distributed.run as run\n"
        "assert not dist.is_available()\n"
        "for call in (lambda: dist.init_process_group('mpi'), run.find_mpiexec):\n"
        "    try: call()\n"
        "    except (RuntimeError, SystemExit) as error: print(error)\n"
    )
    code, printed = start(sys.executable, "-c", program)
    assert code == 0 and printed.count("pip install mpi4py mpich") == 2, printed


def test_importing_tinytorch_does_not_begin_mpi():
    program = "import sys, tinytorch; print([n for n in sys.modules if 'mpi4py' in n])"
    assert start(sys.executable, "-c", program) == (0, "[]\n")


def test_no_module_opens_a_socket():
    for path in (ROOT / "tinytorch" / "distributed").rglob("*.py"):
        assert "socket" not in path.read_text(), path
