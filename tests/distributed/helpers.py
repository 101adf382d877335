"""Starts programs as several processes, and ends them if they hang."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or not dist.is_available(),
    reason="mpi4py or mpiexec is missing: pip install mpi4py mpich",
)


def start(*command, timeout=60, **environment):
    """Run a command from the root of the repository; its exit status, and what it has printed."""
    names = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | names | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends its processes
        printed, _ = process.communicate(timeout=10)
        pytest.fail(f"it has not ended after {timeout} s. It has printed:\n{printed}")
    return process.returncode, printed


def mpiexec(n, *arguments, **options):
    return start(MPIEXEC, "-n", n, sys.executable, *arguments, **options)


def launch(n, *arguments, **options):
    """With python -m tinytorch.distributed.run."""
    launcher = (sys.executable, "-m", "tinytorch.distributed.run", f"--nproc_per_node={n}")
    return start(*launcher, *arguments, **options)
