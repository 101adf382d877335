"""mp.spawn: MPI finds processes that mpiexec has not started, if it is MPICH's."""

import subprocess
import sys
import time

import pytest

from tests.distributed.helpers import MPIEXEC, needs_mpi, start

PROGRAM = "tests/distributed/spawned.py"


def needs_mpich():
    version = subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout
    if "HYDRA" not in version:
        pytest.skip("this mpiexec is not MPICH's")


@needs_mpi
def test_a_program_that_starts_its_own_processes():
    needs_mpich()
    code, printed = start(sys.executable, PROGRAM, "well")
    assert code == 0, printed
    for rank in range(3):
        assert f"rank {rank} of 3: [[1.0, 1.0]]" in printed


@needs_mpi
@pytest.mark.parametrize("way, expected", [("raise", "KeyError: 'lost'"), ("kill", "SIGKILL")])
def test_one_process_that_fails_is_named(way, expected):
    needs_mpich()
    begun = time.monotonic()
    code, printed = start(sys.executable, PROGRAM, way, timeout=30)
    assert code == 1 and expected in printed, printed
    assert "rocess 1 terminated" in printed and time.monotonic() - begun < 20, printed


def test_without_mpich_an_error_says_how_to_start():
    pytest.importorskip("mpi4py")
    program = (
        "import sys, tinytorch.multiprocessing as mp\n"
        "sys.modules[mp.spawn.__module__].find_mpiexec = lambda: None\n"
        "sys.path.insert(0, 'tests/distributed')\n"
        "from spawned import work\n"
        "mp.spawn(work, (2, 'well'), nprocs=2, start_method='fork')\n"
    )
    code, printed = start(sys.executable, "-c", program)
    assert code == 1 and "Start the program with mpiexec or python -m" in printed, printed
