"""DistributedDataParallel and its kin: on simulated ranks, under mpiexec, and when a rank fails."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tinytorch
from tests.distributed import ddp_checks
from tinytorch.distributed.simulator import simulate

ROOT = Path(__file__).resolve().parents[2]
# The wheel of mpich puts mpiexec beside Python.
MPIEXEC = shutil.which(
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
)
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpi4py or mpiexec is missing: pip install mpi4py mpich",
)


def mpiexec(size, *command, timeout=120):
    """What a job prints, with its exit status."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, "-W", "error", *map(str, command)],
        capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize("name", ddp_checks.CHECKS)
def test_on_simulated_ranks(name):
    def check():
        tinytorch.distributed.init_process_group("mpi")
        ddp_checks.CHECKS[name]()

    simulate(2, check)


@needs_mpi
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_under_mpiexec(size):
    done = mpiexec(size, "-m", "tests.distributed.ddp_checks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"ok {name}" for name in ddp_checks.CHECKS]


def losses_of(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(re.findall(r"epoch +(\d+)  loss ([\d.]+)", done.stdout))


@pytest.fixture(scope="module")
def expected():
    """The losses of the example on one process."""
    return losses_of(mpiexec(1, "examples/train_ddp.py", "--epochs", 4))


@needs_mpi
def test_example_on_three_processes_gives_the_losses_of_one(expected):
    assert losses_of(mpiexec(3, "examples/train_ddp.py", "--epochs", 4)) == expected


ERRORS = {
    "raise": "rank 1 of 2 has failed.*the disk is full",
    "kill": "EXIT CODE: 9|Killed",
    "shape": "rank [01], all_reduce: (timed out after 3 s|mismatch between|.*[Tt]runcated)",
    "skip": "rank [01], .*timed out after 3 s",
}


@needs_mpi
@pytest.mark.parametrize("kind", ERRORS)
def test_a_job_that_fails_can_be_resumed(kind, tmp_path, expected):
    options = "--epochs", 4, "--checkpoint", tmp_path / "saved"
    start = time.monotonic()
    done = mpiexec(2, "tests/distributed/faults.py", kind, *options, "--timeout", 3)
    assert done.returncode != 0 and time.monotonic() - start < 30
    assert re.search(ERRORS[kind], done.stdout + done.stderr, re.DOTALL), done.stderr
    before = dict(re.findall(r"epoch +(\d+)  loss ([\d.]+)", done.stdout))
    assert before.items() <= expected.items() and "3" not in before
    after = losses_of(mpiexec(2, "examples/train_ddp.py", *options, "--resume"))
    assert after.items() <= expected.items() and {"3", "4"} <= after.keys()
