"""A stand-in of CuPy and its NCCL: arrays with addresses, and calls that take nothing else."""

import ctypes
import threading
import types

import numpy as np

from tinytorch.distributed.simulator import MPI, here

TYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16".split()
OPS = {"SUM": MPI.SUM, "PROD": MPI.PROD, "MAX": MPI.MAX, "MIN": MPI.MIN}


class ndarray(np.ndarray):
    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.__array_interface__["data"][0])


def at(address, count, kind):
    """The elements at an address."""
    dtype = np.dtype(TYPES[kind])
    memory = (ctypes.c_char * max(count * dtype.itemsize, 1)).from_address(address)
    return np.ndarray(count, dtype, memory)


class NcclCommunicator:
    def __init__(self, size, number, rank):
        assert number == get_unique_id() and (rank, size) == (here.comm.rank, here.comm.size)
        self.comm = here.comm.Split(0, rank)

    def allReduce(self, source, target, count, kind, op, stream):
        out = at(target, count, kind)
        out[...] = at(source, count, kind)
        self.comm.Iallreduce(MPI.IN_PLACE, out, list(OPS.values())[op]).Wait()

    def reduce(self, source, target, count, kind, op, root, stream):
        part, op = at(source, count, kind), list(OPS.values())[op]
        self.comm.Ireduce(part, at(target, count, kind), op, root).Wait()

    def broadcast(self, source, target, count, kind, root, stream):
        out = at(target, count, kind)
        out[...] = at(source, count, kind)
        self.comm.Ibcast(out, root).Wait()

    def allGather(self, source, target, count, kind, stream):
        out = at(target, count * self.comm.size, kind)
        self.comm.Iallgather(at(source, count, kind), out).Wait()

    def reduceScatter(self, source, target, count, kind, op, stream):
        whole, op = at(source, count * self.comm.size, kind), list(OPS.values())[op]
        self.comm.Ireduce_scatter_block(whole, at(target, count, kind), op).Wait()

    def send(self, source, count, kind, peer, stream):
        self.begin(0, lambda: self.comm.Isend(at(source, count, kind), peer))

    def recv(self, target, count, kind, peer, stream):
        self.begin(1, lambda: self.comm.Irecv(at(target, count, kind), peer).Wait())

    def begin(self, order, call):
        """Now, or at the end of the group: the sends first."""
        if pending.calls is None:
            call()
        else:
            pending.calls.append((order, call))

    def destroy(self):
        pass


def get_unique_id():
    return tuple(range(-64, 64))


class Pending(threading.local):
    """What a rank has called since groupStart."""

    calls = None


pending = Pending()


def group_start():
    pending.calls = []


def group_end():
    calls, pending.calls = pending.calls, None
    for _, call in sorted(calls, key=lambda entry: entry[0]):
        call()


class Place:
    """A GPU, by its number. None is the current one, number 0."""

    entered = []

    def __init__(self, number=None):
        self.number = number or 0

    def __enter__(self):
        self.entered.append(self.number)

    def __exit__(self, *exception):
        pass


class CuPy:
    """NumPy's functions, whose results are arrays of the stand-in."""

    ndarray = ndarray
    nccl = types.SimpleNamespace(
        NcclCommunicator=NcclCommunicator,
        NcclError=ZeroDivisionError,
        get_unique_id=get_unique_id,
        groupStart=group_start,
        groupEnd=group_end,
        **{f"NCCL_{name.upper()}": i for i, name in enumerate(TYPES[:-1])},
        **{f"NCCL_{name}": i for i, name in enumerate(OPS)},
    )
    cuda = types.SimpleNamespace(
        nccl=nccl, get_current_stream=lambda: types.SimpleNamespace(ptr=7), Device=Place
    )

    def __getattr__(self, name):
        def call(*args, **options):
            return np.asarray(getattr(np, name)(*args, **options)).view(ndarray)

        return call
