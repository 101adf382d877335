"""Step launcher03: A launcher: torchrun's options for mpiexec

Programs for PyTorch are started with torchrun, and their READMEs say how:

    torchrun --standalone --nproc_per_node=2 train.py --epochs 3

MPI's own starter is mpiexec -n 2 python train.py --epochs 3. The launcher of this step takes
torchrun's options and calls mpiexec:

    python -m tinytorch.distributed.run --nproc_per_node=2 train.py --epochs 3

It does not start mpiexec as a child process: os.execv replaces the running program by mpiexec. So
no process stands between mpiexec and the terminal, and Ctrl-C and kill reach it.

nproc_per_node may be a number, "cpu", "gpu" or "auto". Options that MPI has no use for
(rdzv_endpoint and so on) are accepted and ignored. All may be spelled with - or with _.

The trap: two processes whose NumPy uses all cores compete for them, and are slower than one. With
OMP_NUM_THREADS=1 each product runs on one core.

New: OPTIONS, find_mpiexec, main.
Try: with mpich and mpi4py installed, start a program of yours that prints its rank.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from tinytorch.cuda.backend import device_count
from tinytorch.distributed.mpi import is_available

OPTIONS = dict.fromkeys("node-rank rdzv-backend rdzv-endpoint rdzv-id max-restarts".split()) | {
    "nproc-per-node": "1",
    "nnodes": "1",
    "master-addr": "127.0.0.1",
    "master-port": "29500",
}


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
    command = [find_mpiexec(), "-n", count, sys.executable]
    os.execv(command[0], [*command, *["-m"] * options.module, options.program, *options.args])


if __name__ == "__main__":
    import contextlib
    import io

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

    command = launch("--nproc_per_node=2", "--standalone", "train.py", "--lr=1")
    print(command[:2], command[-2:], os.environ["MASTER_PORT"])
    # -> ['-n', '2'] ['train.py', '--lr=1'] 29500
    print(launch("--nproc-per-node=cpu", "-m", "tool")[-2:])  # -> ['-m', 'tool']
    print(launch("--nproc_per_node=many", "train.py"))
    # -> error: --nproc-per-node: many gives no number of processes
    print(launch("--nnodes=2", "train.py").partition(". ")[0])  # -> error: --nnodes: only 1
    shutil.which = lambda name, path=None: None
    try:
        find_mpiexec()
    except SystemExit as end:
        print(end)  # -> mpiexec is not installed: pip install mpi4py mpich
