"""What all processes check together. Runs in simulated ranks, and as a program under mpiexec:

mpiexec -n 2 python -m tests.distributed.checks
"""

import datetime
import functools
import sys
import warnings

import numpy as np
import pytest

import tinytorch as tt
import tinytorch.distributed as dist
from tinytorch.distributed import ReduceOp

INTEGERS = [tt.uint8, tt.int8, tt.int16, tt.int32, tt.int64]
FLOATS = [tt.float16, tt.float32, tt.float64] + [tt.bfloat16] * (tt.bfloat16.numpy is not None)
DTYPES = [tt.bool, *INTEGERS, *FLOATS]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 0, 3)]
NUMPY_OPS = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


def data(rank, shape, dtype):
    """The tensor of a rank, which all ranks can compute."""
    numbers = np.random.default_rng(rank).integers(0, 4, shape) / (2 if dtype in FLOATS else 1)
    return tt.tensor(numbers).to(dtype)


def scattered(x):
    """The same tensor, whose elements do not lie side by side."""
    return tt.stack([x, x], -1)[..., 0]


def same(tensor, expected):
    assert tensor.shape == expected.shape and tensor.dtype == expected.dtype
    assert tt.equal(tensor, expected), (tensor, expected)


def reduction(parts, op):
    """By NumPy: halves in float32, rounded once."""
    dtype, n = parts[0].dtype, len(parts)
    arrays = [part.array for part in parts]
    if dtype in (tt.float16, tt.bfloat16):
        arrays = [array.astype(np.float32) for array in arrays]
    if op is ReduceOp.AVG:
        return tt.tensor(np.asarray(functools.reduce(np.add, arrays) / n)).to(dtype)
    return tt.tensor(np.asarray(functools.reduce(NUMPY_OPS[op], arrays))).to(dtype)


def ops_of(dtype):
    bits = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
    usual = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    return usual + ([ReduceOp.AVG] if dtype in FLOATS else bits)


def check_reductions(rank, n):
    for dtype in DTYPES:
        for shape in SHAPES:
            parts = [data(r, shape, dtype) for r in range(n)]
            for op in ops_of(dtype):
                for make in (tt.clone, scattered):
                    expected, x = reduction(parts, op), make(parts[rank])
                    assert dist.all_reduce(x, op) is None
                    same(x, expected)
                x = parts[rank].clone()
                dist.reduce(x, n - 1, op)
                if rank == n - 1:
                    same(x, expected)
            # Each process gets a part of the reduction of all.
            whole = [tt.stack([data(r * n + i, shape, dtype) for i in range(n)]) for r in range(n)]
            out = scattered(parts[0])
            dist.reduce_scatter(out, list(whole[rank].unbind()), ReduceOp.MAX)
            expected = reduction([each[rank] for each in whole], ReduceOp.MAX)
            same(out, expected)
            out = tt.zeros_like(parts[0])
            dist.reduce_scatter_tensor(out, whole[rank], ReduceOp.MAX)
            same(out, expected)


def check_moves(rank, n):
    for dtype in DTYPES:
        for shape in SHAPES:
            parts = [data(r, shape, dtype) for r in range(n)]
            for make in (tt.clone, scattered):
                x = make(parts[rank])
                dist.broadcast(x, n - 1)
                same(x, parts[-1])
                outs = [make(tt.zeros_like(part)) for part in parts]
                dist.all_gather(outs, make(parts[rank]))
                for out, part in zip(outs, parts, strict=True):
                    same(out, part)
                outs = [make(tt.zeros_like(part)) for part in parts] if rank == 0 else None
                dist.gather(make(parts[rank]), outs)
                for out, part in zip(outs or [], parts, strict=rank == 0):
                    same(out, part)
                x = make(tt.zeros_like(parts[0]))
                dist.scatter(x, [make(part) for part in parts] if rank == n - 1 else None, n - 1)
                same(x, parts[rank])
            whole = tt.zeros(n, *shape, dtype=dtype)
            dist.all_gather_into_tensor(whole, parts[rank])
            same(whole, tt.stack(parts))
            # What rank r sends to rank i has r + i elements.
            sent = [data(rank * n + i, (rank + i,), dtype) for i in range(n)]
            outs = [tt.zeros(rank + i, dtype=dtype) for i in range(n)]
            dist.all_to_all(outs, sent)
            for i, out in enumerate(outs):
                same(out, data(i * n + rank, (rank + i,), dtype))
            out = tt.zeros(sum(rank + i for i in range(n)), dtype=dtype)
            sizes = [rank + i for i in range(n)]
            dist.all_to_all_single(out, tt.cat(sent), sizes, sizes)
            same(out, tt.cat(outs))
            rows = tt.stack(parts)
            out = tt.zeros_like(rows)
            dist.all_to_all_single(out, scattered(rows))
            same(out, tt.stack([parts[rank]] * n))


def check_large(rank, n):
    x = tt.full((10_000_000,), float(rank + 1))
    dist.all_reduce(x)
    assert (x == n * (n + 1) / 2).all()
    dist.broadcast(x.fill_(float(rank)), n - 1)
    assert (x == n - 1).all()


def check_async(rank, n):
    tensors = [tt.full((size,), float(rank)) for size in (1, 1000, 100_000)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    halves = tt.full((3,), float(rank)).half()
    works.append(dist.all_reduce(halves, ReduceOp.AVG, async_op=True))
    for work in reversed(works):
        assert work.wait() and work.is_completed() and work.wait()
    for x in tensors:
        assert (x == n * (n - 1) / 2).all()
    assert (halves == (n - 1) / 2).all()
    # A call of a new size, and a message before the others make it.
    if n > 1:
        x, y = tt.ones(12_345), tt.ones(1)
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            dist.send(y, 1)
            work.wait()
        else:
            if rank == 1:
                dist.recv(y, 0)
            dist.all_reduce(x)
        assert (x == n).all()
    # A handle that is dropped: MPI still has the memory.
    for number in range(20):
        dist.broadcast(tt.full((10_000,), float(number)), 0, async_op=True)
        if n > 1:
            if rank == 0:
                dist.isend(tt.full((50_000,), float(number)), 1)
            elif rank == 1:
                x = tt.empty(50_000)
                dist.recv(x, 0)
                assert (x == number).all()
    dist.barrier()
    work = dist.barrier(async_op=True)
    while not work.is_completed():
        pass


def check_messages(rank, n):
    following, previous = (rank + 1) % n, (rank - 1) % n
    for dtype in DTYPES:
        x = data(rank, (3, 2), dtype)
        got = scattered(tt.zeros_like(x))
        works = [dist.irecv(got, previous), dist.isend(x, following)]
        for work in works:
            work.wait()
        same(got, data(previous, (3, 2), dtype))
    # Tags tell messages apart; a message from anybody says who has sent it.
    if rank == 0:
        dist.send(tt.tensor([1.0]), 1, tag=1)
        dist.send(tt.tensor([2.0]), 1, tag=2)
        senders = {dist.recv(tt.zeros(1)) for _ in range(n - 1)}
        assert senders == set(range(1, n))
    else:
        if rank == 1:
            x, y = tt.zeros(1), tt.zeros(1)
            assert dist.recv(y, 0, tag=2) == 0 and dist.recv(x, 0, tag=1) == 0
            assert (x.item(), y.item()) == (1, 2)
        dist.send(tt.ones(1), 0)
    dist.barrier()
    if rank == 0:
        dist.send(tt.zeros(2), 1)
    elif rank == 1:
        with pytest.raises(dist.DistBackendError, match="8 bytes for 12"):
            dist.recv(tt.zeros(3), 0)
    dist.barrier()
    # After an error of a handle, the calls that follow know nothing of it.
    if rank == 0:
        dist.send(tt.zeros(2), 1)
    elif rank == 1:
        work = dist.irecv(tt.zeros(3), 0)
        with pytest.raises(dist.DistBackendError, match="8 bytes for 12"):
            work.wait()
    for _ in range(3):
        dist.barrier(async_op=True).wait()


def check_batches(rank, n):
    """Messages to and from all others, in another order in each process, and long ones."""
    for size in (1, 100_000):
        sent = [tt.full((size,), float(10 * rank + r)) for r in range(n)]
        came = [scattered(tt.zeros(size)) if r % 2 else tt.zeros(size) for r in range(n)]
        others = [r for r in range(n) if r != rank]
        ops = [dist.P2POp(dist.irecv, came[r], r) for r in others]
        ops += [dist.P2POp(dist.isend, sent[r], r) for r in others]
        for work in dist.batch_isend_irecv(ops if rank % 2 else ops[::-1]):
            work.wait()
        for r in others:
            same(came[r], tt.full((size,), float(10 * r + rank)))
    x, whole, pair = tt.zeros(1), dist.group.WORLD, dist.new_group([0, 1])
    assert dist.batch_isend_irecv([]) == []
    for mistake in (
        lambda: dist.P2POp(dist.send, x, 0),
        lambda: dist.batch_isend_irecv(x),
        lambda: dist.batch_isend_irecv([x]),
        lambda: dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, 0, whole), dist.P2POp(dist.isend, x, 0, pair)]
        ),
        lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, rank)]),
    ):
        with pytest.raises(ValueError):
            mistake()


def check_monitored_barrier(rank, n):
    some = dist.new_group(list(range(1, n)))
    for _ in range(3):
        dist.monitored_barrier()
        if rank:
            dist.monitored_barrier(some, datetime.timedelta(seconds=20))
    with pytest.raises(TypeError):
        dist.monitored_barrier(timeout=3)


def check_objects(rank, n):
    things = [{"rank": r, "text": "x" * 1000 * r} for r in range(n)]
    found = [None] * n
    dist.all_gather_object(found, things[rank])
    assert found == things
    found = [None] * n if rank == n - 1 else None
    dist.gather_object(things[rank], found, n - 1)
    assert rank != n - 1 or found == things
    found = [rank, "mine"]
    dist.broadcast_object_list(found, n - 1)
    assert found == [n - 1, "mine"]
    found = [None]
    dist.scatter_object_list(found, things if rank == 0 else None)
    assert found == [things[rank]]


def check_groups(rank, n):
    world = dist.group.WORLD
    assert dist.get_backend() == "mpi" and dist.get_process_group_ranks() == list(range(n))
    assert (dist.get_rank(world), dist.get_world_size(world)) == (rank, n)
    ranks = list(range(1, n))
    group = dist.new_group(ranks, timeout=datetime.timedelta(seconds=20))
    alone = [dist.new_group([r]) for r in range(n)]
    assert (dist.get_rank(alone[rank]), dist.get_world_size(alone[rank])) == (0, 1)
    x = tt.tensor([rank])
    dist.all_reduce(x, group=alone[rank])
    assert x.item() == rank
    if rank == 0:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(group) == dist.get_world_size(group) == -1
        with pytest.warns(UserWarning, match="global rank 0 which does not belong"):
            assert dist.all_reduce(x, group=group) is None
        with pytest.warns(UserWarning):
            assert dist.recv(x, 1, group=group) == -1
    else:
        assert dist.get_rank(group) == dist.get_group_rank(group, rank) == rank - 1
        assert dist.get_global_rank(group, rank - 1) == rank and group.timeout == 20
        dist.all_reduce(x, group=group)
        assert x.item() == sum(ranks)
        dist.broadcast(x.fill_(rank), n - 1, group=group)
        assert x.item() == n - 1
        with pytest.raises(ValueError, match="not part of group"):
            dist.broadcast(x, 0, group=group)
        dist.destroy_process_group(group)
    for wrong in ([0, 0], [n], [-1]):
        with pytest.raises(ValueError, match="ranks of a group"):
            dist.new_group(wrong)


def check_mistakes(rank, n):
    x, y = tt.ones(2), tt.ones(3)
    other = (rank + 1) % n
    for error, call in [
        (TypeError, lambda: dist.all_reduce([x])),
        (TypeError, lambda: dist.all_reduce(x.numpy())),
        (TypeError, lambda: dist.all_reduce(x, "sum")),
        (RuntimeError, lambda: dist.all_reduce(x, ReduceOp.BAND)),
        (RuntimeError, lambda: dist.all_reduce(x.long(), ReduceOp.AVG)),
        (RuntimeError, lambda: dist.all_reduce(x > 0, ReduceOp.AVG)),
        (TypeError, lambda: dist.all_gather(x, x)),
        (RuntimeError, lambda: dist.all_gather([x] * (n + 1), x)),
        (RuntimeError, lambda: dist.all_gather([y] * n, x)),
        (ValueError, lambda: dist.all_gather([x.int()] * n, x)),
        (RuntimeError, lambda: dist.all_gather_into_tensor(x, y)),
        (RuntimeError, lambda: dist.reduce_scatter_tensor(x, y)),
        (RuntimeError, lambda: dist.reduce_scatter(x, [x] * (n + 1))),
        (RuntimeError, lambda: dist.all_to_all_single(tt.ones(n + 1), tt.ones(n), [1] * n)),
        (RuntimeError, lambda: dist.all_to_all_single(tt.ones(n), tt.ones(n), [1] * (n + 1))),
        (ValueError, lambda: dist.gather(x, [x] * n if rank else None)),
        (ValueError, lambda: dist.scatter(x, [x] * n if rank else None)),
        (ValueError, lambda: dist.broadcast(x, n)),
        (ValueError, lambda: dist.send(x, rank)),
        (ValueError, lambda: dist.recv(x, rank)),
        (ValueError, lambda: dist.send(x, n)),
        (ValueError, lambda: dist.scatter_object_list([], None, other)),
        (ValueError, lambda: dist.scatter_object_list([None], [1] * (n + 1), rank)),
        (ValueError, lambda: dist.gather_object(1, None, rank)),
        (ValueError, lambda: dist.init_process_group("mpi")),
        (TypeError, lambda: dist.new_group([0], timeout=3)),
        (ValueError, lambda: dist.new_group([0], backend="smoke")),
        (ValueError, lambda: dist.all_to_all([x] * n, [x.int()] * n)),
        (ValueError, lambda: dist.all_to_all_single(tt.ones(n), tt.ones(n).int())),
        (TypeError, lambda: dist.barrier(async_op=True).wait(3)),
    ]:
        with pytest.raises(error):
            call()
    dist.barrier()
    version = x._version
    dist.all_reduce(x)
    assert x._version == version + 1  # so that backward can see it


def main(large=True):
    """All checks, in a process group that this makes."""
    for call in (dist.get_rank, dist.get_world_size, dist.get_backend, dist.barrier):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call()
    with pytest.raises(TypeError, match="timedelta"):
        dist.init_process_group("mpi", timeout=3)
    with pytest.raises(ValueError, match="Invalid backend"):
        dist.init_process_group("smoke")
    with pytest.raises(ValueError, match="world_size is 77, but MPI says"):
        dist.init_process_group("mpi", world_size=77)
    assert not dist.is_initialized() and dist.group.WORLD is None
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=50))
    assert dist.is_initialized()
    rank, n = dist.get_rank(), dist.get_world_size()
    checks = [check_reductions, check_moves, check_async, check_objects, check_mistakes]
    if n > 1:
        checks += [check_messages, check_batches, check_groups, check_monitored_barrier]
    if large:
        checks += [check_large]
    for check in checks:
        check(rank, n)
    dist.destroy_process_group()
    assert not dist.is_initialized()
    return f"rank {rank} of {n}: {len(checks)} checks"


if __name__ == "__main__":
    warnings.simplefilter("error")
    print(main(), flush=True)
    sys.exit(0)
