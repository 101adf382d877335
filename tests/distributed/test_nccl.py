"""The backend nccl, against a stand-in of CuPy's interface: no GPU is needed, and none is used."""

import functools
import sys

import numpy as np
import pytest

import tinytorch as tt
import tinytorch.distributed as dist
from tests.distributed.fake_cupy import CuPy, Place, ndarray
from tinytorch.core import device
from tinytorch.core.device import Backend
from tinytorch.distributed import ReduceOp, nccl
from tinytorch.distributed.simulator import simulate


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    cupy = CuPy()
    monkeypatch.setattr(nccl, "cupy", cupy)
    monkeypatch.setattr(nccl, "check_available", lambda: None)
    place = Backend(cupy, ndarray, lambda a, index: a.copy().view(ndarray), np.asarray)
    monkeypatch.setitem(device.backends, "cuda", place)
    monkeypatch.setitem(device.array_types, ndarray, "cuda")
    known = dict.copy(device.Device.known)
    monkeypatch.setattr(device.Device, "known", {"cpu": known["cpu", None]} | known)
    for key in list(device.Device.known):
        if key[0] == "cuda":
            del device.Device.known[key]


def program():
    dist.init_process_group("nccl")
    rank, n = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "nccl"
    for dtype in (tt.float32, tt.float16, tt.int64, tt.int16, tt.bool):
        rows = [tt.tensor([[r, 1], [2, r]]).to(dtype) for r in range(n)]
        mine = tt.tensor(rows[rank].numpy(), device="cuda")
        if dtype is tt.int16:
            with pytest.raises(RuntimeError, match="NCCL does not compute with int16"):
                dist.all_reduce(mine)
        else:
            total, largest = mine.clone(), mine.T.clone()
            dist.all_reduce(total)
            dist.reduce(largest, 1, ReduceOp.MAX)
            part = tt.empty(2, 2, dtype=dtype, device="cuda")
            dist.reduce_scatter(part, [mine] * n)
            expected = functools.reduce(np.add, [row.numpy() for row in rows]).tolist()
            assert total.tolist() == part.tolist() == expected
            if rank == 1:
                highest = np.maximum.reduce([row.numpy().T for row in rows])
                assert largest.tolist() == highest.tolist()
        x = mine.T  # not contiguous
        dist.broadcast(x, n - 1)
        assert x.tolist() == rows[-1].T.tolist()
        mine = tt.tensor(rows[rank].numpy(), device="cuda")
        outs = [tt.empty_like(mine) for _ in range(n)]
        dist.all_gather(outs, mine)
        assert [out.tolist() for out in outs] == [row.tolist() for row in rows]
        outs = [tt.empty_like(mine) for _ in range(n)] if rank == 1 else None
        dist.gather(mine, outs, 1)
        assert rank != 1 or [out.tolist() for out in outs] == [row.tolist() for row in rows]
        x = tt.empty_like(mine)
        parts = [tt.tensor(row.numpy(), device="cuda") for row in rows]
        dist.scatter(x, parts if rank == 1 else None, 1)
        assert x.tolist() == rows[rank].tolist()
        outs = [tt.empty_like(mine) for _ in range(n)]
        dist.all_to_all(outs, parts)
        assert [out.tolist() for out in outs] == [rows[rank].tolist()] * n
        following, previous = (rank + 1) % n, (rank - 1) % n
        dist.isend(mine, following).wait()
        x = tt.empty_like(mine)
        assert dist.recv(x, previous) == previous and x.tolist() == rows[previous].tolist()
    x, turned = tt.tensor([[rank, 1.0]] * 2, device="cuda"), tt.zeros(2, 2, device="cuda").T
    to, at = dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, turned, previous)
    for work in dist.batch_isend_irecv([at, to]):
        work.wait()
    assert turned.tolist() == [[previous, 1.0]] * 2
    x = tt.tensor([1.0 + rank], device="cuda")
    dist.all_reduce(x, ReduceOp.AVG)
    assert x.item() == (n + 1) / 2
    # A simulated MPI has ValueError for its own errors: the group cannot tell it from NCCL's.
    refused = (ValueError, dist.DistBackendError)
    for error, call in (
        (refused, lambda: dist.all_reduce(x.long(), ReduceOp.BAND)),
        (refused, lambda: dist.recv(x)),
        (RuntimeError, lambda: dist.all_reduce(tt.ones(2))),  # a tensor on the CPU
    ):
        with pytest.raises(error):
            call()
    dist.barrier()
    found = [None] * n
    dist.all_gather_object(found, rank)
    assert found == list(range(n))
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_collectives(n):
    simulate(n, program if n > 1 else single)


def single():
    dist.init_process_group("nccl")
    x = tt.tensor([3.0], device="cuda")
    dist.all_reduce(x)
    assert x.item() == 3


def test_a_group_belongs_to_the_gpu_that_it_is_given(monkeypatch):
    monkeypatch.setattr(sys.modules["tinytorch.distributed.group"], "device_count", lambda: 8)
    Place.entered.clear()

    def chosen():
        dist.init_process_group(device_id=tt.device("cuda", 3))
        dist.all_reduce(tt.ones(1, device="cuda"))
        part = dist.new_group([0])
        return dist.get_backend(), part.gpu

    assert simulate(1, chosen) == [("nccl", 3)] and set(Place.entered) == {3}
    for place, text in (("cuda", "with an index"), ("cpu", "with an index"), (8, "out of range")):
        with pytest.raises(ValueError, match=text):
            simulate(1, lambda place=place: dist.init_process_group(device_id=place))
