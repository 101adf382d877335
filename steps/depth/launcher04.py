"""Step launcher04: The launcher in each process: RANK, LOCAL_RANK, WORLD_SIZE

Programs for torchrun read their place from the environment:

    rank = int(os.environ["RANK"]);   local = int(os.environ["LOCAL_RANK"])

mpiexec gives the same numbers under other names, and each MPI has its own: PMI_RANK with MPICH,
OMPI_COMM_WORLD_RANK with Open MPI. So mpiexec does not start the program itself, but `work`. It
first sets torchrun's names. Then it runs the program as `python train.py` would: as a file, or with
-m as a module, with the name __main__, its own arguments in sys.argv, and its folder in sys.path.
Python's module runpy does this.

The trap: sys.argv and sys.path[0] belong to the launcher until `work` has changed them. Otherwise a
program would not find the modules that lie beside it.

Changed: main. New: PLACES, work.
Try: in the demo, let train.py print sys.path[0]. What is it without the assignment in `work`?
"""

import argparse
import os
import runpy
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from tinytorch.cuda.backend import device_count
from tinytorch.distributed.mpi import is_available

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


def work() -> None:
    """What each process does: learn its place, then run the program as Python would."""
    for name, sources in PLACES.items():
        for source in sources:
            if source in os.environ:
                os.environ[name] = os.environ[source]
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


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
    import io
    import tempfile

    # The launcher would become mpiexec here. It is stopped before it does.
    def launch(*arguments):
        commands = []
        os.execv = lambda path, command: commands.append(command[1:])
        shutil.which = lambda name, path=None: f"/bin/{name}"
        try:
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                main([*arguments])
        except SystemExit as end:
            return (
                printed.getvalue().splitlines()[-1].partition(".run: ")[2] if end.code == 2 else end
            )
        finally:
            shutil.which = which
        return commands[0]

    def is_available():  # as if mpi4py were installed
        return True

    which = shutil.which

    command = launch("--nproc_per_node=2", "train.py", "--lr=1")
    print(command[3:])
    # -> ['-c', 'from tinytorch.distributed.run import work; work()', 'train.py', '--lr=1']
    os.environ |= {"PMI_RANK": "1", "PMI_SIZE": "2"}

    def output(*argv):
        sys.argv = ["-c", *argv]
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            work()
        return [line for line in printed.getvalue().splitlines() if "File" not in line]

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text("import os, sys; print(os.environ['RANK'], sys.argv[1:], __name__)")
        print(output(str(script), "--lr=1"))  # -> ["1 ['--lr=1'] __main__"]
    print(output("-m", "this")[0])  # -> The Zen of Python, by Tim Peters
