"""Step 104h: Catalogue: objects, and a launcher

Skim this one: two things that programs expect, and no new idea.

Objects (a dictionary, a path, a number of samples) are sent as bytes: pickled, with their length
first, since the receiver must have room for them. all_gather_object sends as many bytes for each
process as the longest object needs. The trap is pickle's: loading runs code, so use it only among
your own processes.

The launcher starts a program n times and tells each process its place, as PyTorch's torchrun does:

    python -m tinytorch.distributed.run --nproc_per_node=2 train.py --epochs 3

    main    becomes mpiexec, so that no process stands between it and the terminal (Ctrl-C, kill)
    work    in each process: sets RANK, LOCAL_RANK, WORLD_SIZE and so on from mpiexec's variables,
            then runs the program as Python does, with the name __main__; what it prints is passed
            on line by line, and not all at its end, as Python does where no terminal is
    leave   what mpiexec does not see by itself: an exception before MPI has begun, or sys.exit(1)

With OMP_NUM_THREADS=1 the processes do not fight for the cores: each has one for its products.

New: exchange, distribute, all_gather_object, gather_object, broadcast_object_list,
scatter_object_list; leave, work, find_mpiexec, main. Group, collectives and launcher are complete.
Try: with mpich and mpi4py installed, let a program of yours print its rank, with
--nproc_per_node=4.
"""

import argparse
import io
import os
import pickle
import runpy
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tinytorch.cuda.backend import device_count
from tinytorch.distributed.collectives import ready
from tinytorch.distributed.group import ProcessGroup, get_group_rank
from tinytorch.distributed.mpi import end_job, is_available


def exchange(thing: Any, group: ProcessGroup) -> list:
    """The objects of all processes, by rank."""
    data = np.frombuffer(pickle.dumps(thing), np.uint8)
    sizes = np.empty(group.size(), np.int64)
    group.start("all_gather", (sizes, np.array([data.size])), backend=group.host)
    padded, everything = np.zeros(sizes.max(), np.uint8), np.empty((sizes.size, sizes.max()), "u1")
    padded[: data.size] = data
    group.start("all_gather", (everything, padded), backend=group.host)
    return [pickle.loads(row[:n].tobytes()) for row, n in zip(everything, sizes, strict=True)]


def distribute(thing: Any, root: int, group: ProcessGroup) -> Any:
    """The object of the process `root`, in all of them."""
    data = np.frombuffer(pickle.dumps(thing), np.uint8).copy()
    size = np.array([data.size])
    group.start("broadcast", (size, root), backend=group.host)
    if group.rank() != root:
        data = np.empty(size[0], np.uint8)
    group.start("broadcast", (data, root), backend=group.host)
    return pickle.loads(data.tobytes())


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """Fill object_list with the objects of all processes, in the order of their ranks."""
    if (group := ready("all_gather_object", group)) is not None:
        object_list[: group.size()] = exchange(obj, group)


def gather_object(
    obj: Any, object_gather_list: list | None = None, dst: int = 0, group: Any = None
) -> None:
    """all_gather_object of which only process `dst` gets the result."""
    if (group := ready("gather_object", group)) is None:
        return
    wanted = get_group_rank(group, dst) == group.rank()
    if wanted and not object_gather_list:
        raise ValueError("object_gather_list must be specified on the destination rank")
    found = exchange(obj, group)
    if wanted:
        object_gather_list[: group.size()] = found


def broadcast_object_list(
    object_list: list, src: int = 0, group: Any = None, device: Any = None
) -> None:
    """Replace the objects of the list by those of process `src`."""
    if (group := ready("broadcast_object_list", group)) is not None:
        object_list[:] = distribute(object_list, get_group_rank(group, src), group)


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """Put the object for this process, of the list of process `src`, at place 0 of its list."""
    if (group := ready("scatter_object_list", group)) is None:
        return
    root, things = get_group_rank(group, src), scatter_object_input_list
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_output_list should be a list of size >= 1")
    if group.rank() == root and len(things or ()) != group.size():
        raise ValueError("scatter_object_input_list must have an object for each process")
    scatter_object_output_list[0] = distribute(things, root, group)[group.rank()]


# torchrun's names, and where MPICH's mpiexec and that of Open MPI tell a process the same.
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
    os.kill(os.getpid(), signal.SIGKILL)  # mpiexec ignores another end before MPI has begun


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


def find_mpiexec() -> str:
    """The path of mpiexec: beside this Python, or where the shell finds it.

    Raises:
        SystemExit: there is none, or mpi4py is missing.
    """
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None or not is_available():
        missing = "mpi4py" if found else "mpiexec"
        raise SystemExit(f"{missing} is not installed: pip install 'tinytorch[distributed]'")
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
    import warnings

    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate

    def program():
        init_process_group("mpi")
        rank, found, collected = get_rank(), [None] * 2, [None] * 2 if get_rank() == 1 else None
        all_gather_object(found, {"rank": rank, "text": "long " * rank})
        gather_object(rank * 10, collected, 1)
        settings, share = ["lr", 0.1 * (rank + 1)], [None]
        broadcast_object_list(settings)
        scatter_object_list(share, ["a", "b"] if rank == 0 else None)
        return found[1], collected, settings, share

    for results in simulate(2, program):
        print(*results)
    # -> {'rank': 1, 'text': 'long '} None ['lr', 0.1] ['a']
    # -> {'rank': 1, 'text': 'long '} [0, 10] ['lr', 0.1] ['b']

    def mistakes():
        init_process_group("mpi")
        outside, found = GroupMember.NON_GROUP_MEMBER, []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gather_object(1, group=outside)
            scatter_object_list([], group=outside)
        for mistake in (
            lambda: gather_object(1),
            lambda: scatter_object_list([]),
            lambda: scatter_object_list([None], [1, 2]),
        ):
            try:
                mistake()
            except ValueError as error:
                found.append(str(error))
        return found

    for text in simulate(1, mistakes)[0]:
        print(text)
    # -> object_gather_list must be specified on the destination rank
    # -> scatter_object_output_list should be a list of size >= 1
    # -> scatter_object_input_list must have an object for each process

    # The launcher would become mpiexec here. It is stopped before it does.
    def launch(*arguments):
        commands = []
        os.execv = lambda path, command: commands.append(command[1:])
        is_there, shutil.which = shutil.which, lambda name, path=None: f"/bin/{name}"
        try:
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                main([*arguments])
        except SystemExit as end:
            return (
                printed.getvalue().splitlines()[-1].partition(".run: ")[2] if end.code == 2 else end
            )
        finally:
            shutil.which = is_there
        return commands[0]

    def is_available():
        return True

    command = launch("--nproc_per_node=2", "--standalone", "train.py", "--lr=1")
    print(command[:2], command[-2:], os.environ["MASTER_PORT"])
    # -> ['-n', '2'] ['train.py', '--lr=1'] 29500
    print(launch("--nproc-per-node=cpu", "-m", "tool")[-2:])  # -> ['-m', 'tool']
    print(launch("--nproc_per_node=many", "train.py"))
    # -> error: --nproc-per-node: many gives no number of processes
    print(launch("--nnodes=2", "train.py").partition(". ")[0])  # -> error: --nnodes: only 1
    kept, shutil.which = shutil.which, lambda name, path=None: None
    try:
        find_mpiexec()
    except SystemExit as end:
        print(end)  # -> mpiexec is not installed: pip install 'tinytorch[distributed]'
    shutil.which = kept

    # What each process does. It would end itself; here it tells with which code.
    codes = []
    leave = codes.append
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
