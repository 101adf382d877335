"""Collectives, messages, groups and objects: in simulated ranks, and in processes with MPI."""

import datetime
import time

import pytest

import tinytorch as tt
import tinytorch.distributed as dist
from tests.distributed import checks
from tests.distributed.helpers import mpiexec, needs_mpi
from tinytorch.distributed.simulator import here, simulate


@pytest.mark.parametrize("n", [1, 2, 3])
def test_simulated_ranks(n):
    assert len(simulate(n, checks.main, False)) == n
    assert not dist.is_initialized()


@needs_mpi
@pytest.mark.parametrize("n", [1, 2, 3])
def test_processes(n):
    code, printed = mpiexec(n, "-m", "tests.distributed.checks")
    assert code == 0, printed
    assert printed.count(f" of {n}: ") == n, printed


def test_gloo_is_served_by_mpi_and_says_so_once():
    def program():
        dist.init_process_group("gloo")
        return dist.get_backend()

    with pytest.warns(UserWarning, match="gloo is served by MPI") as caught:
        assert simulate(2, program) == ["gloo", "gloo"]
    assert len(caught) == 1


def test_a_simulated_rank_that_raises_ends_the_others():
    ended = []

    def program():
        try:
            dist.init_process_group("mpi")
            if dist.get_rank() == 1:
                raise KeyError("lost")
            dist.barrier()
        finally:
            ended.append(here.comm.rank)

    with pytest.raises(KeyError, match="lost") as caught:
        simulate(3, program)
    assert caught.value.__notes__ == ["raised by rank 1 of 3"] and sorted(ended) == [0, 1, 2]


def test_simulated_ranks_run_in_the_same_order_each_time():
    def program(seen):
        for step in range(3):
            seen.append((here.comm.rank, step))
            here.comm.Ibarrier().Wait()

    runs: list[list] = [[], []]
    for seen in runs:
        simulate(3, program, seen)
    assert runs[0] == runs[1] and sorted(runs[0]) == sorted(
        (r, s) for r in range(3) for s in range(3)
    )


def test_a_call_that_the_others_skip_times_out():
    def program():
        dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=0.3))
        start = time.monotonic()
        if dist.get_rank() == 0:
            with pytest.raises(dist.DistBackendError, match="rank 0, barrier: timed out"):
                dist.barrier()
            assert 0.25 < time.monotonic() - start < 5

    simulate(2, program)


def test_a_monitored_barrier_names_those_who_do_not_come():
    def program():
        dist.init_process_group("mpi")
        if dist.get_rank() in (0, 2):
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.2))

    with pytest.raises(dist.DistBackendError, match="rank 0, monitored_barrier: rank 1, 3 has not"):
        simulate(4, program)


@pytest.mark.parametrize("always", [False, True])
def test_a_mismatch_is_named(always, monkeypatch):
    if always:
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")

    def program():
        dist.init_process_group("mpi")
        rank = dist.get_rank()
        for size in (3, 4):
            dist.all_reduce(tt.ones(size))
        with pytest.raises(dist.DistBackendError) as caught:
            # Without DETAIL a call is compared only when it is new.
            dist.all_reduce(tt.ones(3 + rank if always else 5 + rank))
        return str(caught.value)

    for rank, message in enumerate(simulate(2, program)):
        assert message.startswith(
            f"rank {rank}, all_reduce: mismatch between the processes: rank 0"
        )
        sizes = (3, 4) if always else (5, 6)
        for other, size in enumerate(sizes):
            assert f"rank {other} calls all_reduce of float32 ({size},)" in message


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda rank: dist.all_reduce(tt.ones(3), list(dist.ReduceOp)[3 * rank]),
            "float32 (3,) MIN",
        ),
        (lambda rank: dist.broadcast(tt.ones(3), rank), "broadcast of float32 (3,) root 1"),
        (lambda rank: dist.all_reduce(tt.ones(3 + rank), async_op=True).wait(), "float32 (4,) SUM"),
    ],
)
def test_another_reduction_root_or_size_is_named(call, text):
    def program():
        dist.init_process_group("mpi")
        with pytest.raises(dist.DistBackendError, match="mismatch between the processes") as caught:
            call(dist.get_rank())
        return str(caught.value)

    assert all(text in message for message in simulate(2, program))


def test_the_place_of_a_process(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank() == dist.get_node_local_rank(fallback_rank=1) == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert dist.get_node_local_rank(fallback_rank=1) == 1
    with pytest.raises(RuntimeError, match="LOCAL_RANK is not in the environment"):
        dist.get_node_local_rank()
    found = [dist.get_default_backend_for_device(d) for d in ("cpu", tt.device("cuda:1"), "cuda")]
    assert found == ["gloo", "nccl", "nccl"]


def test_a_batch_outside_of_its_group():
    def program():
        dist.init_process_group("mpi")
        pair, x = dist.new_group([0]), tt.ones(1)
        if dist.get_rank() == 1:
            return dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 0, pair)])

    assert simulate(2, program) == [None, []]
