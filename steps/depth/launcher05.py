"""Step launcher05: The launcher: errors and exit codes end the job

Step group18's hook ends the job when a rank raises, once MPI has begun. Two ways to fail remain
that no hook sees. A program may fail before init_process_group: an import is missing in one
process. And sys.exit(1) is not an error for Python. Both times the others wait in their first call.

So `work` catches what leaves the program:

    SystemExit with a code       "rank 1 has ended: 3", and the job ends with 3
    any other exception          its traceback, which begins with the program and not with runpy

`leave` ends the job: by MPI_Abort if MPI has begun; otherwise the process kills itself with a
signal, which mpiexec sees. (The demo replaces `leave`, and notes the codes.)

Printing needs care too. Without a terminal, Python keeps what is printed until the end, and a
process that is killed would lose it. So `work` makes it pass on each line.

The trap: SystemExit with code 0 or None is a normal end: the other processes go on.

Changed: work. New: leave. They complete run.py.
Try: let train.py end with sys.exit(), without a number.
"""

import argparse
import io
import os
import runpy
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from tinytorch.cuda.backend import device_count
from tinytorch.distributed.farewell import promise_farewell
from tinytorch.distributed.mpi import end_job, is_available, world

# torchrun's names, and the names under which MPICH and Open MPI give the same numbers.
PLACES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"),
}


OPTIONS = dict.fromkeys("node-rank rdzv-backend rdzv-endpoint rdzv-id max-restarts".split()) | {
    "nproc-per-node": "1",
    "nnodes": "1",
    "master-addr": "127.0.0.1",
    "master-port": "29500",
}


def leave(code: int) -> NoReturn:
    """End this process and with it the job, without waiting for the others."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and not mpi.Is_finalized():
        end_job(mpi, code)
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)  # before MPI has begun, mpiexec ignores other ends


def work() -> None:
    """What each process does: it runs the program, and ends the job if that fails."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # mpiexec gets whole lines, when they are printed
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    for name, sources in PLACES.items():
        for source in sources:
            if source in os.environ:
                os.environ[name] = os.environ[source]
    del sys.argv[0]
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            print(f"rank {os.environ.get('RANK')} has ended: {end.code}", file=sys.stderr)
            leave(end.code if isinstance(end.code, int) else 1)
    except BaseException as error:
        print(f"rank {os.environ.get('RANK')} has failed:", file=sys.stderr)
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            trace = trace.tb_next  # the traceback begins with the program
        traceback.print_exception(type(error), error, trace)
        leave(1)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # MPI begins when all begin it. The others may wait for this process, which did without.
        promise_farewell(world()[0])


def find_mpiexec() -> str:
    """The path of mpiexec: beside this Python, or where the shell finds it.

    Raises:
        SystemExit: there is none, or mpi4py is missing.
    """
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None or not is_available():
        missing = "mpi4py" if found else "mpiexec"
        raise SystemExit(f"{missing} is not installed: pip install mpi4py mpich")
    return found


def main(arguments: list[str] | None = None) -> NoReturn:
    """Become mpiexec, with the options that the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m tinytorch.distributed.run", description=__doc__
    )
    for name, default in OPTIONS.items():
        names = sorted({f"--{name}", f"--{name.replace('-', '_')}"})
        parser.add_argument(*names, default=default)
    parser.add_argument("--standalone", action="store_true", help="has no effect")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    cores, gpus = os.cpu_count(), device_count()
    count = {"cpu": cores, "gpu": gpus, "auto": gpus or cores}.get(options.nproc_per_node)
    count = str(count or options.nproc_per_node)
    if not count.isdigit() or count == "0":
        parser.error(f"--nproc-per-node: {options.nproc_per_node} gives no number of processes")
    if options.nnodes not in ("1", "1:1"):
        parser.error("--nnodes: only 1. On more machines call mpiexec with its list of hosts")
    os.environ |= {"MASTER_ADDR": options.master_addr, "MASTER_PORT": options.master_port}
    if count != "1":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    start = "from tinytorch.distributed.run import work; work()"
    command = [find_mpiexec(), "-n", count, sys.executable, "-c", start]
    os.execv(command[0], [*command, *["-m"] * options.module, options.program, *options.args])


if __name__ == "__main__":
    import contextlib
    import tempfile

    # A process would end itself here. Instead its code is noted.
    codes = []
    leave, world, promise_farewell = codes.append, lambda: [None], lambda mpi: None
    os.environ |= {"PMI_RANK": "1", "PMI_SIZE": "2"}

    def output(*argv):
        sys.argv = ["-c", *argv]
        printed = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            work()
        printed.seek(0)
        return [line for line in printed.read().splitlines() if "File" not in line]

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text("print('ok')")
        print(output(str(script)))  # -> ['ok']
        script.write_text("raise KeyError('lost')")
        for line in output(str(script)):
            print(line)
        # -> rank 1 has failed:
        # -> Traceback (most recent call last):
        # ->     raise KeyError('lost')
        # -> KeyError: 'lost'
        script.write_text("import sys; sys.exit(3)")
        print(output(str(script)), codes)  # -> ['rank 1 has ended: 3'] [1, 3]
    print(output("-m", "this")[0])  # -> The Zen of Python, by Tim Peters
