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
if way == "nothing" and os.environ["RANK"] == "1":
    sys.exit()
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
    if way == "leave":
        sys.exit(0)
    if way == "end":
        os._exit(0)
    if way == "kill":
        print("it goes well")
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "skip":
        time.sleep(60)
if way == "late":  # rank 1 sends its part and ends; rank 2 is late with its own
    dist.reduce(tt.ones(2), 0)
    y = tt.ones(2)
    if rank == 2:
        time.sleep(2)
    dist.reduce(y, 0)
    if rank == 1:
        sys.exit()
    assert rank == 2 or y.tolist() == [3.0, 3.0]
    os._exit(0)
if way in ("dtype", "op"):
    x, op = tt.ones(1), dist.ReduceOp.SUM
    dist.all_reduce(x)
    if rank == 1:
        x, op = (x.int(), op) if way == "dtype" else (x, dist.ReduceOp.MAX)
    dist.all_reduce(x, op)
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
