"""Programs that end in different ways: mpiexec -n 2 python -m tests.distributed.jobs WAY"""

import datetime
import os
import signal
import sys
import time

import tinytorch as tt
import tinytorch.distributed as dist

way = sys.argv[1]
if way == "before" and os.environ["RANK"] == "1":
    raise KeyError("too early")
seconds = 1.5 if way in ("skip", "caught") else 60
dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=seconds))
rank = dist.get_rank()
if way == "names":
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
    sys.stdout.write(f"{[os.environ[name] for name in names]} {sys.argv[1:]} {__name__}\n")
    sys.stdout.flush()
    assert (rank, dist.get_world_size()) == (int(os.environ["RANK"]), 2)
if rank == 1:
    if way == "raise":
        raise KeyError("lost")
    if way == "exit":
        sys.exit(3)
    if way == "kill":
        print("it goes well")
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "skip":
        time.sleep(60)
if way == "shape":
    dist.broadcast(tt.ones(3 + rank), 0)
if way == "caught":
    if rank == 0:
        try:
            dist.barrier()
        except RuntimeError as error:
            print("caught:", error, flush=True)
            sys.exit()  # without rank 1, for which MPI would wait here
    time.sleep(60)
x = tt.ones(1)
dist.all_reduce(x)
assert x.item() == dist.get_world_size()
